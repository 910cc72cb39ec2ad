package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

// Metric is what a room registered. A scrape shows only what has a value already; an
// alert is written before that.
type Metric struct {
	Name string `json:"name"`
	// Kind is "counter", "gauge", "histogram" or, where nothing tells, "".
	Kind   string            `json:"kind"`
	Labels []string          `json:"labels"`
	Const  map[string]string `json:"const"` // labels of one value
	Help   string            `json:"help"`
}

// registerer is a registry that remembers what was registered.
type registerer struct {
	*prometheus.Registry
	mu   sync.Mutex
	seen []prometheus.Collector
}

func (r *registerer) Register(c prometheus.Collector) error {
	err := r.Registry.Register(c)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, c)
	}
	return err
}

func (r *registerer) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		if err := r.Register(c); err != nil {
			panic(err) // what prometheus.Registry does
		}
	}
}

// metrics lists what was registered, by name.
func (r *registerer) metrics() ([]Metric, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Metric
	for _, c := range r.seen {
		descs := make(chan *prometheus.Desc)
		go func() { // ends with the descriptions, which are finite
			defer close(descs)
			c.Describe(descs)
		}()
		var errs []error
		for d := range descs {
			m, err := metricOf(d)
			m.Kind = kindOf(c, m.Name)
			out, errs = append(out, m), append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

var (
	descText  = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*").*, constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constPair = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)=("(?:[^"\\]|\\.)*")`)
)

// metricOf reads a description's text: it has no other way to tell what it is.
func metricOf(d *prometheus.Desc) (Metric, error) {
	parts := descText.FindStringSubmatch(d.String())
	if parts == nil {
		return Metric{}, fmt.Errorf("cannot read the description %s", d)
	}
	m := Metric{Name: parts[1], Const: map[string]string{}, Labels: []string{}}
	var err error
	if m.Help, err = strconv.Unquote(parts[2]); err != nil {
		return Metric{}, fmt.Errorf("help of %s: %w", m.Name, err)
	}
	for _, pair := range constPair.FindAllStringSubmatch(parts[3], -1) {
		if m.Const[pair[1]], err = strconv.Unquote(pair[2]); err != nil {
			return Metric{}, fmt.Errorf("labels of %s: %w", m.Name, err)
		}
	}
	if parts[4] != "" {
		m.Labels = strings.Split(parts[4], ",")
	}
	return m, nil
}

func kindOf(c prometheus.Collector, name string) string {
	switch c.(type) {
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec, prometheus.Gauge:
		return "gauge"
	case prometheus.Counter: // gauges have its methods too, and come before
		return "counter"
	}
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return ""
}

// metricsCommand wires the service with an order to stop in force, so that nothing works
// and nothing is asked, and lists what the rooms registered.
func metricsCommand(spec Spec, environ []string, stderr io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print every metric that the service exports, those without a value yet included",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			base, err := loadBase(spec, environ)
			if err != nil {
				return err
			}
			log := newLogger(base, spec.Name, stderr)
			ctx, cancel := context.WithCancel(log.WithContext(cmd.Context()))
			cancel()
			p, err := newProcess(ctx, spec.Name, base)
			if err != nil {
				return err
			}
			err = errors.Join(spec.Run(p.ctx, p), p.stop(ctx, nil))
			if err != nil {
				return fmt.Errorf("wire the service: %w", err)
			}
			list, err := p.registry.metrics()
			if err != nil {
				return err
			}
			return printMetrics(cmd.OutOrStdout(), list, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printMetrics(out io.Writer, list []Metric, asJSON bool) error {
	if asJSON {
		return writeJSON(out, list)
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "METRIC\tKIND\tLABELS\tMEANING")
	for _, m := range list {
		labels := slices.Clone(m.Labels)
		for _, name := range slices.Sorted(maps.Keys(m.Const)) {
			labels = append(labels, fmt.Sprintf("%s=%q", name, m.Const[name]))
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.Name, m.Kind, strings.Join(labels, ","), m.Help)
	}
	return t.Flush()
}
