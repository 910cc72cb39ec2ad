package redisstreams

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

func TestHeadersComeBackAsTheyWent(t *testing.T) {
	for _, h := range []map[string]string{
		nil,
		{"a": ""},
		{"": "nameless", "7:x": "3:abc", "größe": "优惠券 🎟", "binary": "\x00\xff:\n", "long": strings.Repeat("y", 70_000)},
	} {
		got, err := parseHeaders(string(appendHeaders(nil, h)))
		if err != nil || !maps.Equal(got, h) {
			t.Errorf("%d headers came back as %v, %v", len(h), got, err)
		}
	}
}

func FuzzParseHeadersTakesAnything(f *testing.F) {
	for _, s := range []string{"", "1:a1:b", "1:a", "9:a", "-1:a", "99999999999999999999:a", ":", "a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := parseHeaders(s)
		if err != nil {
			return
		}
		back, err := parseHeaders(string(appendHeaders(nil, h)))
		if err != nil || !maps.Equal(h, back) {
			t.Errorf("%q: %v became %v, %v", s, h, back, err)
		}
	})
}

func TestAttemptCountsFailuresAndForgivesSomeSilence(t *testing.T) {
	const slack = 2
	counter := int64(1) // the first delivery
	step := func(what string, next int64, want int) {
		t.Helper()
		counter = next
		if got := attempt(counter, slack); got != want {
			t.Errorf("after %s the counter is %d, attempt %d, want %d", what, counter, got, want)
		}
	}
	step("the first delivery", counter, 1)
	step("a polite return and the next delivery", undelivered(counter)+1, 1)
	step("a failure and the next delivery", afterFailure(counter)+1, 2)
	step("a death and the next delivery", counter+1, 2)
	step("a second death", counter+1, 2)
	step("a third, beyond the slack", counter+1, 3)
	step("a failure", afterFailure(counter)+1, 4)
	step("a polite return", undelivered(counter)+1, 4)
	if undelivered(0) != 0 {
		t.Error("the counter became negative")
	}
}

func TestTopicsMapToKeysOfOneSlot(t *testing.T) {
	n := names{env: "id-test", country: "id"}
	k, err := n.of("beex-id-events")
	if err != nil || k.stream != "beex:id-test:events" {
		t.Fatalf("stream is %q, %v", k.stream, err)
	}
	for _, helper := range []string{k.due("g"), k.members("g"), k.trimLock} {
		if !strings.HasPrefix(helper, "{beex:id-test:events}:") {
			t.Errorf("helper key %q is in another slot", helper)
		}
	}
	if topic, ok := n.topic(k.stream); !ok || topic != "beex-id-events" {
		t.Errorf("the way back gives %q", topic)
	}
	for _, bad := range []string{"", "events", "beex-my-events", "beex-id-", "beex-id-a b", "beex-id-{x}", "beex-id-" + strings.Repeat("x", 200)} {
		if _, err := n.of(bad); !errors.Is(err, errTopic) {
			t.Errorf("topic %q was taken: %v", bad, err)
		}
	}
}

func TestClassify(t *testing.T) {
	for text, want := range map[string]driver.Status{
		"OOM command not allowed when used memory > 'maxmemory'.": driver.Throttled,
		"LOADING Redis is loading the dataset in memory":          driver.Unavailable,
		"READONLY You can't write against a read only replica.":   driver.Unavailable,
		"NOREPLICAS Not enough good replicas to write.":           driver.Unavailable,
		"MISCONF Redis is configured to save RDB snapshots":       driver.Unavailable,
		"NOAUTH Authentication required.":                         driver.Unavailable,
		"WRONGPASS invalid username-password pair":                driver.Unavailable,
		"WRONGTYPE Operation against a key":                       driver.Unavailable,
		"CLUSTERDOWN The cluster is down":                         driver.Unavailable,
		"ERR max number of clients reached":                       driver.Unavailable,
		"ERR Elements are too large to be stored":                 driver.Refused,
		"ERR something about this one":                            driver.Failed,
	} {
		status, answered := classify(fmt.Errorf("wrapped: %w", serverError(text)))
		if status != want || !answered {
			t.Errorf("%q is %s, answered %v; want %s", text, status, answered, want)
		}
	}
	for _, err := range []error{errors.New("i/o timeout"), redis.ErrClosed, redis.ErrPoolTimeout} {
		if status, answered := classify(err); status != driver.Unavailable || answered {
			t.Errorf("%v is %s, answered %v", err, status, answered)
		}
	}
}

func TestMissingGroup(t *testing.T) {
	for text, want := range map[string]bool{
		"NOGROUP No such key 'x' or consumer group 'g' in XREADGROUP with GROUP option":   true,
		"UNBLOCKED the stream key no longer exists":                                       true,
		"ERR no such key script: 4f, on @user_script:10.":                                 true,
		"ERR Error running script (call to f_1): @user_script:5: NOGROUP No such key 'x'": true,
		"ERR syntax error": false,
	} {
		if got := missingGroup(serverError(text)); got != want {
			t.Errorf("missingGroup(%q) = %v", text, got)
		}
	}
	if missingGroup(errors.New("read tcp: NOGROUP")) || missingGroup(nil) {
		t.Error("an error that no server sent is taken for an answer")
	}
}

func TestConfigTellsEverythingAtOnce(t *testing.T) {
	err := Config{Addresses: []string{"redis://host:1", "b:1"}, Mode: modeCluster, DB: 3, TLSCAFile: "/x", Password: "very-secret"}.Validate()
	for _, want := range []string{"seahub.redis.addresses", "SEAHUB_REDIS_DB", "SEAHUB_REDIS_TLS_CA_FILE"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %s: %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "very-secret") {
		t.Errorf("error tells the password")
	}
	for _, c := range []Config{
		{Addresses: []string{"a:1", "b:1"}, Mode: modeSingle},
		{Addresses: []string{"a:1"}, Mode: modeSentinel},
		{Addresses: []string{"a:1"}, Mode: modeSingle, TLS: true, TLSCAFile: "/no/such/file"},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v was taken", c)
		}
	}
	if _, err := New(Config{}, Options{}); err == nil || !strings.Contains(err.Error(), "names no server") || !strings.Contains(err.Error(), "env") {
		t.Errorf("New without anything says %v", err)
	}
}

func TestMembersNeverShareAName(t *testing.T) {
	if a, b := memberName(), memberName(); a == b || a == parkingName {
		t.Errorf("two members of one process are named %q and %q", a, b)
	}
}

func TestBlockIsNeverZero(t *testing.T) {
	// Redis takes BLOCK 0 for "for ever".
	if b := (Config{Block: 10 * time.Microsecond}).withDefaults().Block; b < time.Millisecond {
		t.Errorf("block is %s", b)
	}
}

func TestClientLogIsBounded(t *testing.T) {
	var out strings.Builder
	l := &clientLog{logger: zerolog.New(&out)}
	for range 1000 {
		l.Printf(t.Context(), "dial failed: %v", errors.New("refused"))
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines for one outage", n)
	}
	l.next = time.Time{}
	l.Printf(t.Context(), "once more")
	if !strings.Contains(out.String(), `"suppressed":999`) {
		t.Errorf("the suppressed lines are not counted: %s", out.String())
	}
}

func TestUnsafeSettingsAreNamed(t *testing.T) {
	names := func(info string, allow bool) (named, refused string) {
		for _, f := range findings(parseInfo(info), allow) {
			named += " " + f.setting
			if f.noPublish {
				refused += " publish"
			}
			if f.noConsume {
				refused += " consume"
			}
		}
		return strings.TrimSpace(named), strings.TrimSpace(refused)
	}
	const good = "# Server\r\nredis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nrole:master\r\nconnected_slaves:0\r\n"
	for _, c := range []struct{ what, info, named, refused string }{
		{"a good server", good, "", ""},
		{"what is not known", "", "", ""},
		{"eviction of streams", "maxmemory_policy:allkeys-lru\r\n", "maxmemory-policy", "publish"},
		{"eviction of other keys", "maxmemory_policy:volatile-ttl\r\n", "maxmemory-policy", ""},
		{"no persistence", "aof_enabled:0\r\n", "appendonly", ""},
		{"a replica", "role:slave\r\n", "role", ""},
		{"replicas that nobody waits for", "role:master\r\nconnected_slaves:1\r\n", "min-replicas-to-write", ""},
		{"replicas that are waited for", "role:master\r\nconnected_slaves:1\r\nmin_slaves_good_slaves:1\r\n", "", ""},
		{"an old version", "redis_version:6.0.16\r\n", "version", "consume"},
		{"a version with a long number", "redis_version:10.1.0\r\n", "", ""},
	} {
		if named, refused := names(c.info, false); named != c.named || refused != c.refused {
			t.Errorf("%s: named %q, refused %q", c.what, named, refused)
		}
	}
	if named, refused := names("maxmemory_policy:allkeys-lru\r\n", true); named != "maxmemory-policy" || refused != "" {
		t.Errorf("allowed eviction: named %q, refused %q", named, refused)
	}
}

// A read's answer: what the server may send, whole and broken at every byte.
func TestReply(t *testing.T) {
	const answer = "*1\r\n*2\r\n$6\r\nstream\r\n*2\r\n" +
		"*2\r\n$3\r\n1-0\r\n*10\r\n$3\r\ntag\r\n$1\r\nA\r\n$3\r\nkey\r\n$3\r\nk:1\r\n$4\r\nbody\r\n$6\r\na\r\n\x00*$\r\n$7\r\nheaders\r\n$0\r\n\r\n$4\r\nmore\r\n$1\r\nx\r\n" +
		"*2\r\n$3\r\n2-0\r\n*-1\r\n"
	read := func(text string) ([]entry, error) {
		var r reply
		if _, err := r.Write([]byte(text)); err != nil {
			t.Fatalf("write: %v", err)
		}
		return r.entries()
	}
	got, err := read(answer)
	if err != nil || len(got) != 2 || got[0].id != "1-0" || got[0].tag != "A" || got[0].key != "k:1" ||
		string(got[0].body) != "a\r\n\x00*$" || got[0].headers != "" || got[1].id != "2-0" || got[1].body != nil {
		t.Errorf("read %+v, %v", got, err)
	}
	if got, err := read("*-1\r\n"); err != nil || len(got) != 0 {
		t.Errorf("an answer without messages is %v, %v", got, err)
	}
	for n := range len(answer) {
		if n > 0 {
			if _, err := read(answer[:n]); !errors.Is(err, errReply) {
				t.Errorf("%q was taken: %v", answer[:n], err)
			}
		}
	}
	for _, bad := range []string{"+OK\r\n", ":1\r\n", "*2\r\n*2\r\n$1\r\ns\r\n*0\r\n", "*1\r\n*2\r\n$1\r\ns\r\n*99999999\r\n", "*1\r\n*2\r\n$-1\r\n*0\r\n"} {
		if _, err := read(bad); !errors.Is(err, errReply) {
			t.Errorf("%q was taken: %v", bad, err)
		}
	}
	var r reply
	if _, err := r.Write([]byte("-NOGROUP No such key")); !missingGroup(err) {
		t.Errorf("an error answer is %v", err)
	}
}

// What was read stays as it is when the buffer takes the next answer: handlers have it
// in hand by then.
func TestEntriesOutliveTheBufferOfTheirAnswer(t *testing.T) {
	answer := func(c string) []byte {
		s := "$4\r\n" + strings.Repeat(c, 4) + "\r\n"
		return []byte("*1\r\n*2\r\n$6\r\nstream\r\n*1\r\n*2\r\n$3\r\n1-" + c + "\r\n*8\r\n$3\r\ntag\r\n" + s + "$3\r\nkey\r\n" + s + "$4\r\nbody\r\n" + s + "$7\r\nheaders\r\n" + s)
	}
	var r reply
	var first entry
	for _, c := range []string{"1", "2"} {
		r.reset()
		if _, err := r.Write(answer(c)); err != nil {
			t.Fatal(err)
		}
		got, err := r.entries()
		if err != nil || len(got) != 1 {
			t.Fatalf("read %+v, %v", got, err)
		}
		if c == "1" {
			first = got[0]
		}
	}
	if first.id != "1-1" || first.tag != "1111" || first.key != "1111" || first.headers != "1111" || string(first.body) != "1111" {
		t.Errorf("the next answer changed it to %+v", first)
	}
}
