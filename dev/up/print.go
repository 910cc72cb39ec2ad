package up

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// printAddresses says where everything is and what to do with it.
func printAddresses(out io.Writer, o Options, s State) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) { _, _ = fmt.Fprintf(t, "%s\t%s\n", name, value) }
	host, port, schema := partsOf(s.DSN)
	_, _ = fmt.Fprintln(t)
	row("MariaDB", s.DSN)
	row("", fmt.Sprintf("mariadb --host=%s --port=%s --user=root %s", host, port, schema))
	row("Redis", s.Redis)
	row("FCM fake", s.FCM)
	row("its record", s.FCM+"/record")
	for _, service := range s.Services {
		row(service.Name, fmt.Sprintf("http://%s/readyz  /livez  /metrics  /version", service.Admin))
	}
	row("logs", filepath.Join(o.Dir, "logs"))
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, `
A push by SQL (the INSERT into outbox_event is the contract; a device first):

  INSERT INTO user_devices (id, user_id, platform, push_token) VALUES ('d1', 'u1', 'android', 'token-1');
  START TRANSACTION;
  INSERT INTO push_messages (id, user_id, title, body, due_at) VALUES ('4711', 'u1', 'Hello', 'From SQL', NOW(3));
  INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at)
  VALUES ('obe-by-hand-1', 'push:4711', 'PUSH_DISPATCH', 'push_task', '4711', '{"pushId":"4711"}', NOW(3));
  COMMIT;

At first the flag is off: the poll sends, the event is skipped. To turn it on (binding everywhere within 10 s):

%s
  %s flags set push-dispatch on --percent 100 --reason "trying it"
  %s flags list

Stop everything: make down
`, exports(s.Env), relative(o, s), relative(o, s))
	return err
}

// exports are the variables that a command needs, the same that the services got.
func exports(env map[string]string) string {
	var names []string
	for name := range env {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		if strings.HasPrefix(name, "SEAHUB_FCM_") || strings.HasPrefix(name, "SEAHUB_TIKTOK_") || strings.HasPrefix(name, "SEAHUB_CAMPAIGN_") {
			continue // the relay has no use for them
		}
		fmt.Fprintf(&b, "  export %s='%s'\n", name, env[name])
	}
	return strings.TrimRight(b.String(), "\n")
}

func relative(o Options, s State) string {
	path := filepath.Join(s.Binaries, "relay")
	if r, err := filepath.Rel(o.Root, path); err == nil {
		return r
	}
	return path
}

// partsOf takes a DSN of the form user@tcp(host:port)/schema apart.
func partsOf(dsn string) (host, port, schema string) {
	_, rest, _ := strings.Cut(dsn, "tcp(")
	addr, schema, _ := strings.Cut(rest, ")/")
	host, port, _ = strings.Cut(addr, ":")
	return host, port, schema
}
