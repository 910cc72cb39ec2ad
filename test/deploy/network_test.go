package deploy

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// The ways out that a pod may have, by what is at the other end.
const (
	toDNS      = "dns"
	toDatabase = "database"
	toBroker   = "broker"
	toInternet = "internet"
	toTraces   = "traces"
)

// networkProblems: nothing is open that is not written down, and each pod has exactly the
// ways out that its work needs.
func networkProblems(p *project, r *rendered) []string {
	c := complain{about: r.name}
	c.when(!r.deniesByDefault(), "does not deny by default")
	for _, n := range r.Policies {
		c.about = "NetworkPolicy " + n.Name
		policyProblems(&c, n)
	}
	for _, w := range r.workloads() {
		c.about = w.String()
		env, _ := r.environment(w)
		got := r.waysOut(w, p, env)
		want := []string{toDNS}
		component, service := w.component(), w.service()
		if component != "topics" {
			want = append(want, toDatabase)
		}
		if component == componentRelay || component == componentConsume || component == "topics" {
			want = append(want, toBroker)
		}
		if env.values["SEAHUB_TRACE_ENDPOINT"] != "" && w.deployment != nil {
			want = append(want, toTraces)
		}
		if service == "push-consumer" || service == "campaign-consumer" || service == "ops-consumer" && component == componentPoll {
			want = append(want, toInternet)
		}
		slices.Sort(want)
		c.when(!slices.Equal(got, want), "may reach %v, its work needs %v", got, want)
	}
	return append(c.list, ingressProblems(r)...)
}

func (r *rendered) deniesByDefault() bool {
	for _, n := range r.Policies {
		all := len(n.Spec.PodSelector.MatchLabels)+len(n.Spec.PodSelector.MatchExpressions) == 0
		if all && len(n.Spec.PolicyTypes) == 2 && len(n.Spec.Egress)+len(n.Spec.Ingress) == 0 {
			return true
		}
	}
	return false
}

// policyProblems: every rule names both ends and the ports; no address is a placeholder.
func policyProblems(c *complain, n networkingv1.NetworkPolicy) {
	check := func(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
		c.when(len(peers) == 0 || len(ports) == 0, "has a rule without an other end or without ports")
		for _, peer := range peers {
			if peer.IPBlock == nil {
				c.when(peer.NamespaceSelector == nil || peer.PodSelector == nil, "lets in or out more than certain pods of a certain namespace")
				continue
			}
			_, err := netip.ParsePrefix(peer.IPBlock.CIDR)
			c.when(err != nil, "has the range %q", peer.IPBlock.CIDR)
			if peer.IPBlock.CIDR == "0.0.0.0/0" {
				for _, private := range []string{"10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"} {
					c.when(!slices.Contains(peer.IPBlock.Except, private), "the internet includes %s", private)
				}
			}
		}
		for _, port := range ports {
			c.when(port.Port == nil || port.Protocol == nil || port.EndPort != nil, "has a rule without an exact port")
		}
	}
	for _, e := range n.Spec.Egress {
		check(e.To, e.Ports)
	}
	for _, i := range n.Spec.Ingress {
		check(i.From, i.Ports)
	}
}

// waysOut classifies every egress rule that applies to a workload.
func (r *rendered) waysOut(w workload, p *project, env environment) []string {
	var out []string
	for _, n := range r.Policies {
		if !w.selects(&n.Spec.PodSelector) {
			continue
		}
		for _, e := range n.Spec.Egress {
			for _, peer := range e.To {
				out = append(out, classify(peer, e.Ports, p.brokerPort(env, w)))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func classify(peer networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, brokerPort int) string {
	has := func(want int, protocol corev1.Protocol) bool {
		return slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
			return p.Port != nil && p.Port.IntValue() == want && p.Protocol != nil && *p.Protocol == protocol
		})
	}
	switch {
	case peer.NamespaceSelector != nil && has(53, corev1.ProtocolUDP) && has(53, corev1.ProtocolTCP):
		return toDNS
	case peer.NamespaceSelector != nil && has(4318, corev1.ProtocolTCP):
		return toTraces
	case peer.IPBlock == nil:
		return "?"
	case peer.IPBlock.CIDR == "0.0.0.0/0" && len(ports) == 1 && has(443, corev1.ProtocolTCP):
		return toInternet
	case peer.IPBlock.CIDR != "0.0.0.0/0" && len(ports) == 1 && has(3306, corev1.ProtocolTCP):
		return toDatabase
	case peer.IPBlock.CIDR != "0.0.0.0/0" && has(brokerPort, corev1.ProtocolTCP):
		return toBroker
	}
	return "?"
}

// brokerPort is the port of the broker that the configuration names.
func (p *project) brokerPort(env environment, w workload) int {
	variable := "SEAHUB_REDIS_ADDRESSES"
	if env.values["SEAHUB_MQ_PROVIDER"] == "rocketmq" {
		variable = "SEAHUB_ROCKETMQ_NAME_SERVERS"
	}
	first, _, _ := strings.Cut(p.value(env, w.service(), variable), ",")
	_, port, _ := net.SplitHostPort(first)
	n, _ := strconv.Atoi(port)
	return n
}

// ingressProblems: monitoring reaches every Deployment's metrics, Alertmanager the
// receiver, and nobody anything else.
func ingressProblems(r *rendered) []string {
	var c complain
	for _, w := range r.workloads() {
		c.about = w.String()
		var from []string
		for _, n := range r.Policies {
			if !w.selects(&n.Spec.PodSelector) {
				continue
			}
			for _, i := range n.Spec.Ingress {
				for _, port := range i.Ports {
					c.when(port.Port.IntValue() != 9090, "port %s is open", port.Port)
				}
				for _, peer := range i.From {
					if peer.PodSelector != nil {
						from = append(from, peer.PodSelector.MatchLabels["app.kubernetes.io/name"])
					}
				}
			}
		}
		slices.Sort(from)
		want := []string{"prometheus"}
		if w.service() == "ops-consumer" && w.component() == componentPoll {
			want = []string{"alertmanager", "prometheus"}
		}
		c.when(!slices.Equal(from, want), "is reached from %v, wanted is %v", from, want)
	}
	return c.list
}
