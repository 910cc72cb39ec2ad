package eventbus

// Topic is the topic of a country's events. Callers name topics like this on every
// broker; a driver maps it to what its broker calls them.
func Topic(country string) string { return "beex-" + country + "-events" }

// Group is the consumer group of a task in a country: Group("id", "push_dispatch") is
// GID_id_push_dispatch.
func Group(country, task string) string { return "GID_" + country + "_" + task }
