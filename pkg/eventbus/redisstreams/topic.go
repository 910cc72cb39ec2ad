package redisstreams

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// ErrNoGroup: the group does not exist on the topic (yet).
var ErrNoGroup = driver.ErrNoGroup

// Ensure implements driver.Provisioner. Groups begin at the start of the stream: an
// event that was published before its first consumer existed is an event all the same.
func (d *Driver) Ensure(ctx context.Context, topic string, groups []string) error {
	k, err := d.names.of(topic)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if _, err := d.ensureGroup(ctx, k, g); err != nil {
			return err
		}
	}
	return nil
}

// ensureGroup makes stream and group and reports whether it had to.
func (d *Driver) ensureGroup(ctx context.Context, k keys, group string) (created bool, err error) {
	err = d.cmd.XGroupCreateMkStream(ctx, k.stream, group, "0").Err()
	switch {
	case err == nil:
		return true, nil
	case redis.HasErrorPrefix(err, "BUSYGROUP"):
		return false, nil
	}
	return false, fmt.Errorf("make group %s on %s: %w", group, k.stream, err)
}

// Topics implements driver.Inspector.
func (d *Driver) Topics(ctx context.Context) ([]string, error) {
	if err := d.preflight.look(ctx); err != nil {
		return nil, err
	}
	var topics []string
	scan := func(ctx context.Context, node redis.Cmdable) error {
		it := node.ScanType(ctx, 0, d.names.streamPrefix()+"*", 1000, "stream").Iterator()
		for it.Next(ctx) {
			if t, ok := d.names.topic(it.Val()); ok {
				topics = append(topics, t)
			}
		}
		return it.Err()
	}
	var err error
	if cluster, ok := d.cmd.(*redis.ClusterClient); ok {
		// One after the other: they append to one list.
		var masters []*redis.Client
		masters, err = clusterMasters(ctx, cluster)
		for _, m := range masters {
			if err == nil {
				err = scan(ctx, m)
			}
		}
	} else {
		err = scan(ctx, d.cmd)
	}
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	slices.Sort(topics)
	return slices.Compact(topics), nil
}

func clusterMasters(ctx context.Context, c *redis.ClusterClient) ([]*redis.Client, error) {
	found := make(chan *redis.Client, 1024)
	err := c.ForEachMaster(ctx, func(_ context.Context, m *redis.Client) error {
		found <- m
		return nil
	})
	close(found)
	var out []*redis.Client
	for m := range found {
		out = append(out, m)
	}
	return out, err
}

// Groups implements driver.GroupLister; a topic that does not exist has none.
func (d *Driver) Groups(ctx context.Context, topic string) ([]string, error) {
	k, err := d.names.of(topic)
	if err != nil {
		return nil, err
	}
	infos, err := d.cmd.XInfoGroups(ctx, k.stream).Result()
	if err != nil && !missingGroup(err) {
		return nil, fmt.Errorf("list groups of %s: %w", topic, err)
	}
	var groups []string
	for _, g := range infos {
		groups = append(groups, g.Name)
	}
	slices.Sort(groups)
	return groups, nil
}

// maxCounted bounds the look at a stream whose lag Redis does not know: it waits
// meanwhile, a few milliseconds for these.
const maxCounted = 1000

// Group implements driver.Inspector.
//
// Unread is what Redis calls lag, taken as zero when nothing follows the group's
// position: after a cut by the memory fuse lag alone goes on counting what is gone.
// When Redis does not know it (after a restart, or for a group made in mid-stream), what
// follows is counted, up to maxCounted: then Backlog says "at least".
func (d *Driver) Group(ctx context.Context, topic, group string) (driver.GroupState, error) {
	k, err := d.names.of(topic)
	if err != nil {
		return driver.GroupState{}, err
	}
	raw, err := d.scripts.inspect.Run(ctx, d.cmd, []string{k.stream, k.members(group)},
		group, parkingName, d.staleAfter().Milliseconds(), maxCounted).Slice()
	if err != nil {
		return driver.GroupState{}, fmt.Errorf("inspect group %s on %s: %w", group, topic, err)
	}
	if len(raw) != 6 {
		return driver.GroupState{}, fmt.Errorf("inspect group %s on %s: %w", group, topic, ErrNoGroup)
	}
	now, unread, pending, parked := toInt(raw[0]), toInt(raw[1]), toInt(raw[2]), toInt(raw[3])
	oldest, _ := raw[4].(string)
	s := driver.GroupState{
		Topic: topic, Group: group,
		Backlog:   driver.KnownCount(unread + pending),
		InFlight:  driver.KnownCount(pending - parked),
		Parked:    driver.KnownCount(parked),
		OldestAge: driver.KnownAge(0),
	}
	if at := idTime(oldest); !at.IsZero() {
		s.OldestAge = driver.KnownAge(max(0, time.UnixMilli(now).Sub(at)))
	}
	members, _ := raw[5].([]any)
	for _, m := range members {
		if name, ok := m.(string); ok {
			s.Members = append(s.Members, name)
		}
	}
	slices.Sort(s.Members)
	return s, nil
}

func toInt(v any) int64 {
	n, _ := v.(int64)
	return n
}

// staleAfter is when a member that has not been heard of is no longer listed: it
// beats with every renewal, so this is many missed beats.
func (d *Driver) staleAfter() time.Duration { return 4 * d.cfg.Lease }
