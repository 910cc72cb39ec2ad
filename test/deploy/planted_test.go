package deploy

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mistake is one that somebody could make, and which check catches it with which words.
type mistake struct {
	name, file, old, replacement string
	check, want                  string
}

const (
	base       = k8s + "/base/"
	components = k8s + "/components/"
	idTest     = k8s + "/overlays/id-test/"
	idProd     = k8s + "/overlays/id-prod/"
)

// podMistakes are about pods and what they are told.
var podMistakes = []mistake{
	{"a misspelt field", base + "pod.yaml", "revisionHistoryLimit", "revisionHistoryLimits", "render", "unknown field"},
	{"a misspelt field of a custom resource", components + "keda/scaling.yaml", "pollingInterval", "pollInterval", "render", "unknown field"},
	{"a field that is there twice", base + "relay.yaml", "  replicas: 2", "  replicas: 2\n  replicas: 3", "render", "relay"},
	{"a Secret", idTest + "namespace.yaml", "apiVersion: v1", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: x\n---\napiVersion: v1", "render", "never kept here"},
	{"a kind that nothing checks", idTest + "namespace.yaml", "apiVersion: v1", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n---\napiVersion: v1", "render", "no check knows"},
	{"no seccomp profile", base + "pod.yaml", "        seccompProfile:\n          type: RuntimeDefault\n", "", "restricted", "seccomp"},
	{"a Job as root", components + "migration/job.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "restricted", "runAsNonRoot"},
	{"a namespace without enforcement", idTest + "namespace.yaml", "enforce: restricted", "enforce: baseline", "restricted", "does not enforce"},
	{"another namespace", idTest + "kustomization.yaml", "namespace: seahub-mq-id-test", "namespace: other", "facts", "deployed into"},
	{"a writable root", base + "pod.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "pods", "writable"},
	{"variables of Services", base + "pod.yaml", "enableServiceLinks: false", "enableServiceLinks: true", "pods", "other Services"},
	{"a token", base + "pod.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "pods", "mounts a token"},
	{"an account with a token", base + "ops-consumer.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "pods", "its account ops-consumer"},
	{"no account", base + "relay.yaml", "serviceAccountName: relay", "serviceAccountName: default", "pods", "account of its own"},
	{"a tag that moves", idTest + "kustomization.yaml", "newTag: 0.1.0", "newTag: latest", "pods", "not pinned"},
	{"two versions", idTest + "kustomization.yaml", "newTag: 0.1.0", "newTag: 0.2.0", "pods", "mixes versions"},
	{"a forgotten image", idTest + "kustomization.yaml", "  - name: seahub-mq/ops-consumer\n", "  - name: seahub-mq/ops\n", "pods", "not pinned"},
	{"migrations in every pod", base + "relay.yaml", "      containers:\n", "      initContainers:\n        - name: migrate\n          image: seahub-mq/relay\n          args: [migrate]\n      containers:\n", "pods", "exactly one container"},
	{"no limit of memory", base + "relay.yaml", "              memory: 256Mi\n", "", "pods", "no limit of memory"},
	{"GOMEMLIMIT at the limit", base + "relay.yaml", "value: 230MiB", "value: 256MiB", "pods", "not about 90 %"},
	{"no CPU limit", base + "relay.yaml", "              cpu: \"2\"\n", "", "pods", "neither a CPU limit"},
	{"a surge", base + "pod.yaml", "maxSurge: 0", "maxSurge: 1", "life", "one pod at a time"},
	{"members that change too fast", base + "push-consumer.yaml", "minReadySeconds: 30", "minReadySeconds: 10", "life", "minReadySeconds"},
	{"a relay replaced within its lease", base + "relay.yaml", "minReadySeconds: 25", "minReadySeconds: 14", "life", "minReadySeconds"},
	{"a longer lease", base + "kustomization.yaml", "literals:", "literals:\n      - SEAHUB_RELAY_LEASE_TTL=60s", "life", "minReadySeconds"},
	{"liveness that asks the database", base + "pod.yaml", "          livenessProbe:\n            httpGet:\n              path: /livez", "          livenessProbe:\n            httpGet:\n              path: /readyz", "life", "liveness"},
	{"no startup probe", base + "pod.yaml", "          startupProbe:\n            httpGet:\n              path: /livez\n              port: admin\n            periodSeconds: 2\n            timeoutSeconds: 2\n            failureThreshold: 60\n", "", "life", "startup"},
	{"another admin port", base + "kustomization.yaml", "SEAHUB_ADMIN_ADDR=:9090", "SEAHUB_ADMIN_ADDR=:9191", "life", "no port of the container"},
	{"a long drain", base + "kustomization.yaml", "SEAHUB_DRAIN_TIMEOUT=25s", "SEAHUB_DRAIN_TIMEOUT=35s", "life", "grace of 45 s"},
	{"a short grace", base + "pod.yaml", "terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 35", "life", "does not exceed"},
	{"handlers that outlive the process", base + "kustomization.yaml", "SEAHUB_BUS_DRAIN_TIMEOUT=20s", "SEAHUB_BUS_DRAIN_TIMEOUT=25s", "life", "drain for longer"},
	{"a selector that takes both roles", base + "coupon-consumer.yaml", "  selector:\n    matchLabels: *labels", "  selector:\n    matchLabels:\n      app.kubernetes.io/name: coupon-consumer", "life", "selector"},
	{"no disruption budget", base + "relay.yaml", "kind: PodDisruptionBudget\nmetadata:\n  name: relay\nspec:\n  maxUnavailable: 1\n  unhealthyPodEvictionPolicy: AlwaysAllow\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: relay", "kind: PodDisruptionBudget\nmetadata:\n  name: relay\nspec:\n  maxUnavailable: 1\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: relays", "life", "has 0 disruption budgets"},
	{"a budget that blocks drains", base + "relay.yaml", "  maxUnavailable: 1\n", "  minAvailable: 2\n", "life", "maxUnavailable 1"},
	{"a spread over all pods", base + "pod.yaml", "matchLabelKeys: [app.kubernetes.io/name, app.kubernetes.io/component, pod-template-hash]", "matchLabelKeys: [pod-template-hash]", "life", "its own pods"},
	{"a spread that blocks", base + "pod.yaml", "whenUnsatisfiable: ScheduleAnyway", "whenUnsatisfiable: DoNotSchedule", "life", "keep a pod from running"},
	{"a Job without an end", components + "migration/job.yaml", "  activeDeadlineSeconds: 900\n", "", "jobs", "deadline"},
	{"no migration", idTest + "kustomization.yaml", "  - ../../components/migration\n", "", "jobs", "has 0 migrations"},
}

// settingMistakes are about the environment of pods.
var settingMistakes = []mistake{
	{"a misspelt variable", idTest + "kustomization.yaml", "SEAHUB_DB_TIME_ZONE=", "SEAHUB_DB_TIMEZONES=", "settings", "no service reads SEAHUB_DB_TIMEZONES"},
	{"a variable of another service", base + "relay.yaml", "            - name: GOGC", "            - name: SEAHUB_PUSH_LEASE\n              value: 30s\n            - name: GOGC", "settings", "relay does not read SEAHUB_PUSH_LEASE"},
	{"a required variable that lacks", idTest + "kustomization.yaml", "      - SEAHUB_COUNTRY=id\n", "", "settings", "SEAHUB_COUNTRY is required"},
	{"a required secret that lacks", base + "campaign-consumer.yaml", "            - name: SEAHUB_TIKTOK_APP_SECRET\n              valueFrom:\n                secretKeyRef:\n                  name: seahub-mq-tiktok\n                  key: app-secret\n", "", "settings", "SEAHUB_TIKTOK_APP_SECRET is required"},
	{"a secret in a ConfigMap", idTest + "kustomization.yaml", "      - SEAHUB_COUNTRY=id\n", "      - SEAHUB_COUNTRY=id\n      - SEAHUB_REDIS_PASSWORD=hunter2\n", "settings", "holds the secret SEAHUB_REDIS_PASSWORD"},
	{"a secret written out", base + "ops-consumer.yaml", "              valueFrom:\n                secretKeyRef:\n                  name: seahub-mq-feishu\n                  key: secret\n", "              value: hunter2\n", "settings", "SEAHUB_FEISHU_SECRET is written out"},
	{"a Secret without a key", base + "relay.yaml", "                  key: relay\n", "", "settings", "not to a key of a Secret"},
	{"another service's account", base + "coupon-consumer.yaml", "key: coupon-consumer\n", "key: relay\n", "settings", "has the database account of relay"},
	{"a broker's password for the poll", components + "redis-streams/kustomization.yaml", "in (relay, consume)", "in (relay, consume, poll)", "settings", "no business with the broker"},
	{"a secret that nobody is told of", k8s + "/README.md", "`hook`, ", "", "secrets", "needs the key hook of secret seahub-mq-feishu"},
	{"the wrong role", base + "push-consumer.yaml", "              value: poll\n", "              value: all\n", "settings", "has the role"},
	{"a missing poll", base + "coupon-consumer.yaml", "  name: coupon-consumer-poll\n  labels", "  name: coupon-poll\n  labels", "roles", "has Deployments"},
	{"another country", idTest + "kustomization.yaml", "SEAHUB_COUNTRY=id", "SEAHUB_COUNTRY=my", "facts", "runs for country"},
	{"another environment's migration", idProd + "environment.yaml", "env: id-prod", "env: id-test", "facts", "runs as env"},
	{"production on the test's broker", idProd + "kustomization.yaml", "components/rocketmq", "components/redis-streams", "facts", "uses"},
	{"no time zone", idProd + "kustomization.yaml", "      - SEAHUB_DB_TIME_ZONE=+07:00\n", "", "facts", "time zone"},
	{"a value that the service refuses", base + "kustomization.yaml", "literals:", "literals:\n      - SEAHUB_PUSH_LEASE=20s", "refused", "SEAHUB_FCM_TIMEOUT"},
	{"a broker without an address", idProd + "kustomization.yaml", "SEAHUB_ROCKETMQ_NAME_SERVERS=rocketmq.id-prod.internal.example.com:8080", "SEAHUB_ROCKETMQ_NAME_SERVERS=", "refused", "NAME_SERVERS"},
}

// clusterMistakes are about networks, scaling and monitoring.
var clusterMistakes = []mistake{
	{"no default", components + "network-policy/policies.yaml", "policyTypes: [Ingress, Egress]", "policyTypes: [Ingress]", "network", "deny by default"},
	{"no policies at all", idProd + "kustomization.yaml", "  - ../../components/network-policy\n", "", "network", "deny by default"},
	{"a way to anywhere", components + "network-policy/policies.yaml", "    - to:\n        - namespaceSelector:\n            matchLabels:\n              kubernetes.io/metadata.name: kube-system\n          podSelector:\n            matchLabels:\n              k8s-app: kube-dns\n      ports:", "    - ports:", "network", "without an other end"},
	{"a way by any port", components + "redis-streams/policy.yaml", "      ports:\n        - {protocol: TCP, port: 6379}\n", "", "network", "without ports"},
	{"the internet with the inside", components + "network-policy/policies.yaml", "except: [10.0.0.0/8, ", "except: [", "network", "includes 10.0.0.0/8"},
	{"no way to the database", components + "network-policy/policies.yaml", "values: [relay, consume, poll, migrate]", "values: [relay, consume, poll]", "network", "Job migrate: may reach"},
	{"a relay on the internet", components + "network-policy/policies.yaml", "values: [push-consumer, campaign-consumer]", "values: [push-consumer, campaign-consumer, relay]", "network", "Deployment relay: may reach"},
	{"a poll at the broker", components + "rocketmq/policy.yaml", "values: [relay, consume, topics]", "values: [relay, consume, poll, topics]", "network", "Deployment push-consumer-poll: may reach"},
	{"a broker at another port", idTest + "kustomization.yaml", "internal.example.com:6379", "internal.example.com:6380", "network", "may reach"},
	{"a placeholder", idTest + "environment.yaml", "databaseRange: 10.10.16.0/24", "databaseRange: fill-me-in", "network", "has the range"},
	{"metrics for everybody", components + "network-policy/policies.yaml", "              app.kubernetes.io/name: prometheus", "              app.kubernetes.io/name: anything", "network", "is reached from"},
	{"more members than queues", components + "keda/scaling.yaml", "maxReplicaCount: 8", "maxReplicaCount: 9", "scale", "the topic has 8 queues"},
	{"fewer queues", components + "rocketmq/kustomization.yaml", "SEAHUB_ROCKETMQ_QUEUES=8", "SEAHUB_ROCKETMQ_QUEUES=4", "scale", "the topic has 4 queues"},
	{"down to nothing", components + "keda/scaling.yaml", "minReplicaCount: 2", "minReplicaCount: 0", "scale", "goes down to 0"},
	{"a fast scale-down", components + "keda/scaling.yaml", "stabilizationWindowSeconds: 300", "stabilizationWindowSeconds: 60", "scale", "scales down fast"},
	{"a silent Prometheus", components + "keda/scaling.yaml", "    behavior: currentReplicasIfHigher\n", "", "scale", "silent Prometheus"},
	{"unknown as zero", components + "keda/scalers.yaml", `ignoreNullValues: "false"`, `ignoreNullValues: "true"`, "scale", "takes unknown for zero"},
	{"another group", components + "keda/scalers.yaml", "GID_.._push_dispatch", "GID_.._coupon_expire", "scale", "is not that of Deployment push-consumer"},
	{"another task", components + "keda/scalers.yaml", `task="push-dispatch"`, `task="push_dispatch"`, "scale", "is not that of Deployment push-consumer"},
	{"another namespace's figures", idProd + "environment.yaml", "namespace: seahub-mq-id-prod", "namespace: seahub-mq-id-test", "scale", "is taken from namespace"},
	{"nothing when the broker is silent", components + "keda/scalers.yaml", ` or max(seahub_task_overdue_rows{namespace="environment",task="push-dispatch"})`, "", "scale", "nothing to go by"},
	{"a target that is not there", components + "keda/scalers.yaml", "  scaleTargetRef:\n    name: push-consumer", "  scaleTargetRef:\n    name: push", "scale", "which there is not"},
	{"replicas beside a scaler", components + "keda/kustomization.yaml", "app.kubernetes.io/component=consume", "app.kubernetes.io/component=none", "scale", "reset the number"},
	{"a metric that nobody exports", components + "keda/scalers.yaml", "seahub_task_overdue_rows", "seahub_task_rows_overdue", "metrics", "which no service exports"},
	{"more connections than there are", idProd + "kustomization.yaml", "literals:", "literals:\n      - SEAHUB_DB_MAX_OPEN=32", "connections", "the database leaves it"},
	{"a scaler that asks for more", components + "keda/scaling.yaml", "maxReplicaCount: 8", "maxReplicaCount: 16", "connections", "the database leaves it"},
	{"a database that nobody asked", idProd + "environment.yaml", "  databaseConnections: \"900\"\n", "", "connections", "does not say"},
	{"a port that is not there", components + "monitoring/monitor.yaml", "    - port: admin", "    - port: metrics", "monitor", "is scraped at"},
	{"a Service that leads nowhere", components + "monitoring/monitor.yaml", "    app.kubernetes.io/component: poll", "    app.kubernetes.io/component: polls", "monitor", "0 Deployments"},
	{"pods that nobody scrapes", components + "monitoring/monitor.yaml", "      app.kubernetes.io/part-of: seahub-mq", "      app.kubernetes.io/part-of: seahub", "monitor", "is not scraped"},
}

// fileMistakes are about the other files.
var fileMistakes = []mistake{
	{"a module that is not copied", "Dockerfile", "COPY pkg pkg\n", "", "dockerfile", "needs pkg, which is not copied"},
	{"modules that come too late", "Dockerfile", "COPY pkg/go.mod pkg/go.sum pkg/\n", "", "dockerfile", "before the modules are downloaded"},
	{"a further replaced module", "services/relay/go.mod", "replace github.com/seahub/seahub-mq/pkg => ../../pkg", "replace github.com/seahub/seahub-mq/pkg => ../../pkg\n\nreplace github.com/seahub/seahub-mq/more => ../../more", "dockerfile", "relay needs more"},
	{"paths in the binary", "Dockerfile", " -trimpath", "", "dockerfile", "lacks -trimpath"},
	{"no version", "Dockerfile", "service.version=", "service.edition=", "dockerfile", "service.version"},
	{"the workspace in the image", "Dockerfile", "GOWORK=off ", "", "dockerfile", "lacks GOWORK=off"},
	{"cgo", "Dockerfile", "CGO_ENABLED=0", "CGO_ENABLED=1", "dockerfile", "lacks CGO_ENABLED=0"},
	{"root", "Dockerfile", "USER 65532:65532", "USER 0", "dockerfile", "does not run as 65532"},
	{"a base that moves", "Dockerfile", "static-debian12:nonroot", "static-debian12:latest", "dockerfile", "not pinned"},
	{"another Go", "Dockerfile", "golang:1.26.10-bookworm", "golang:1.25.8-bookworm", "dockerfile", "not the Go of go.work"},
	{"a service that go.work forgets", "go.work", "\t./services/relay\n", "", "names", "dev/stack names"},
	{"a service that the base forgets", base + "kustomization.yaml", "  - coupon-consumer.yaml\n", "", "names", "deploy/k8s/base names"},
	{"an image of another service", base + "relay.yaml", "image: seahub-mq/relay", "image: seahub-mq/ops-consumer", "names", "Deployment relay is labelled"},
	{"a service that compose forgets", "compose.yaml", "args: {SERVICE: ops-consumer,", "args: {SERVICE: ops,", "names", "compose.yaml names"},
	{"a Makefile with a list of its own", "Makefile", "$(wildcard services/*/go.mod)", "services/relay/go.mod", "names", "Makefile"},
	{"a variable that nobody reads", "compose.yaml", "SEAHUB_LOG_FORMAT:", "SEAHUB_LOG_FORMATS:", "compose", "no service reads SEAHUB_LOG_FORMATS"},
	{"a variable that dev/stack gives", "compose.yaml", "  SEAHUB_DB_TIME_ZONE: \"+00:00\"\n", "", "compose", "is not told SEAHUB_DB_TIME_ZONE"},
	{"a field that compose has not", "compose.yaml", "working_dir:", "workdir:", "compose", "unknown field"},
	{"another port", "compose.yaml", "127.0.0.1:17391:9090", "127.0.0.1:17491:9090", "compose", "`make up` has it at"},
	{"an open port", "compose.yaml", "127.0.0.1:17306:3306", "17306:3306", "compose", "open to other machines"},
	{"a dependency that is not there", "compose.yaml", "tiktok: {condition: service_healthy}", "tik: {condition: service_healthy}", "compose", "depends on tik"},
}

// overlayOf is the overlay in which a mistake shows.
func overlayOf(m mistake) string {
	switch {
	case strings.HasPrefix(m.file, idTest), strings.HasPrefix(m.file, components+"redis-streams/"):
		return idTest
	}
	return idProd
}

// problems runs one check over the tree.
func (p *project) problems(ctx context.Context, check, overlay string) ([]string, error) {
	switch check {
	case "dockerfile":
		return dockerfileProblems(p.tree), nil
	case "compose":
		return composeProblems(p.tree, p.keys), nil
	}
	r, err := render(p.tree, strings.TrimSuffix(overlay, "/"))
	switch {
	case check == "render" && err != nil:
		return []string{err.Error()}, nil
	case err != nil:
		return nil, err
	case check == "names":
		return nameProblems(p.tree, []*rendered{r}), nil
	case rules[check] != nil:
		return rules[check](p, r), nil
	case asking[check] != nil:
		return asking[check](ctx, p, r), nil
	}
	return nil, nil
}

// TestPlantedMistakes: each check finds what it is there for, with words that say what it is.
func TestPlantedMistakes(t *testing.T) {
	whole := inspected(t)
	for _, list := range [][]mistake{podMistakes, settingMistakes, clusterMistakes, fileMistakes} {
		for _, m := range list {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				f, err := whole.with(m.file, m.old, m.replacement)
				require.NoError(t, err)
				p := &project{tree: f, keys: whole.keys, binaries: whole.binaries, fcmKey: whole.fcmKey}
				found, err := p.problems(t.Context(), m.check, overlayOf(m))
				require.NoError(t, err)
				require.Contains(t, strings.Join(found, "\n"), m.want)
			})
		}
	}
}
