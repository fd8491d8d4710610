package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leaderd/leaderd/state"
)

// takeover is what a failover may take besides the lease's TTL: election,
// loading and planning anew, with some to spare.
const takeover = 5 * time.Second

var (
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	logLevels  = []string{"trace", "debug", "info", "warn", "error", "off"}
	logFormats = []string{FormatHuman, FormatJSON}
)

// checker collects violations.
type checker struct{ errs []error }

func (c *checker) fail(path, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
}

// Validate answers every violation, joined, each with its setting's path.
func (c Config) Validate() error {
	var v checker
	if !nameForm.MatchString(c.Name) {
		v.fail("name", "%q must be 1–128 bytes of letters, digits, '.', '_' and '-', beginning with a letter or digit", c.Name)
	}
	if c.DataDir == "" {
		v.fail("data_dir", "must not be empty")
	}
	c.checkRoles(&v)
	c.checkLabels(&v)
	c.checkResources(&v)
	v.between("capacity", int64(c.Capacity), 1, state.MaxCapacity)
	v.listener("listen", c.Listen)
	v.listener("advertise", c.Advertise)
	if host, _, err := net.SplitHostPort(c.Advertise); err == nil && isWildcard(host) {
		v.fail("advertise", "%q is a wildcard: others cannot reach it", c.Advertise)
	}
	if c.OpsListen != "" {
		v.listener("ops_listen", c.OpsListen)
	}
	c.checkControlAddresses(&v)
	if c.Control() {
		c.Etcd.check(&v)
	}
	if c.EmbedsEtcd() {
		c.Etcd.Embedded.check(&v, c.Name)
	}
	v.lease("election.ttl", c.Election.TTL)
	c.checkPlanner(&v)
	c.Retention.check(&v)
	c.Executor.check(&v)
	v.oneOf("log.level", c.Log.Level, logLevels)
	v.oneOf("log.format", c.Log.Format, logFormats)
	v.pair("tls", c.TLS.CertFile, c.TLS.KeyFile)
	if c.Control() && c.TLS.CAFile != "" && c.TLS.CertFile == "" {
		v.fail("tls.cert_file", "a control node with tls.ca_file needs a certificate, since others will speak TLS to it")
	}
	return errors.Join(v.errs...)
}

func (c Config) checkRoles(v *checker) {
	if len(c.Roles) == 0 {
		v.fail("roles", "must have control, executor or both")
	}
	for i, role := range c.Roles {
		path := fmt.Sprintf("roles[%d]", i)
		v.oneOf(path, role, []string{RoleControl, RoleExecutor})
		if slices.Contains(c.Roles[:i], role) {
			v.fail(path, "%q is there twice", role)
		}
	}
}

func (c Config) checkLabels(v *checker) {
	if len(c.Labels) > state.MaxLabels {
		v.fail("labels", "there are %d, more than %d", len(c.Labels), state.MaxLabels)
	}
	for key, value := range c.Labels {
		if key == "" || len(key) > state.MaxLabelBytes || len(value) > state.MaxLabelBytes {
			v.fail(fmt.Sprintf("labels[%s]", key), "key and value have at most %d bytes, and the key at least one", state.MaxLabelBytes)
		}
	}
}

func (c Config) checkResources(v *checker) {
	var bad state.Violations
	state.Resources(c.Resources).Check(&bad, "resources")
	for _, b := range bad {
		v.fail(b.Field, "%s", b.Description)
	}
}

func (c Config) checkControlAddresses(v *checker) {
	if !c.Control() && len(c.ControlAddresses) == 0 {
		v.fail("control_addresses", "a node without the role control needs the address of at least one control node")
	}
	for i, address := range c.ControlAddresses {
		v.dialled(fmt.Sprintf("control_addresses[%d]", i), address)
	}
}

func (c Config) checkPlanner(v *checker) {
	const longest = 5 * time.Minute
	switch h := c.Planner.Horizon; {
	case h > longest:
		v.fail("planner.horizon", "%s is more than %s", h, longest)
	case h <= c.Election.TTL+takeover:
		v.fail("planner.horizon", "%s must exceed election.ttl (%s) by more than %s, or a failover makes slots late",
			h, c.Election.TTL, takeover)
	}
	v.between("planner.max_planned", int64(c.Planner.MaxPlanned), 1_000, 10_000_000)
	v.duration("planner.hedge_delay", c.Planner.HedgeDelay, 50*time.Millisecond, time.Minute)
}

func (r Retention) check(v *checker) {
	v.between("retention.max_runs", int64(r.MaxRuns), 1, state.MaxRetainedRuns)
	v.duration("retention.max_age", r.MaxAge, state.MinRetainedAge, state.MaxRetainedAge)
	v.duration("retention.period", r.Period, time.Second, 24*time.Hour)
	if r.StoreBudgetBytes != 0 && r.StoreBudgetBytes < 8*MiB {
		v.fail("retention.store_budget_bytes", "%s is less than 8MiB; 0 is half of etcd's quota", r.StoreBudgetBytes)
	}
}

func (e Executor) check(v *checker) {
	v.lease("executor.registration_ttl", e.RegistrationTTL)
	v.duration("executor.drain_grace", e.DrainGrace, 0, 24*time.Hour)
	if e.OutputMaxBytes < MiB {
		v.fail("executor.output_max_bytes", "%s is less than 1MiB", e.OutputMaxBytes)
	}
	if e.OutputMaxRunBytes < 64*KiB || e.OutputMaxRunBytes > e.OutputMaxBytes {
		v.fail("executor.output_max_run_bytes", "%s must be from 64KiB to executor.output_max_bytes (%s)",
			e.OutputMaxRunBytes, e.OutputMaxBytes)
	}
}

func (e Etcd) check(v *checker) {
	for i, endpoint := range e.Endpoints {
		u, err := url.Parse(endpoint)
		if err == nil && strings.Contains(endpoint, "://") {
			if (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
				continue
			}
		} else if _, _, err := net.SplitHostPort(endpoint); err == nil {
			continue
		}
		v.fail(fmt.Sprintf("etcd.endpoints[%d]", i), "%q is neither an http(s) URL nor host:port", endpoint)
	}
	// "//" would put keys where the escaping of names does not expect them.
	if !strings.HasPrefix(e.Prefix, "/") || !strings.HasSuffix(e.Prefix, "/") || len(e.Prefix) < 3 || strings.Contains(e.Prefix, "//") {
		v.fail("etcd.prefix", "%q must begin and end with a slash, with a name between", e.Prefix)
	}
	if e.Password != "" && e.PasswordFile != "" {
		v.fail("etcd.password", "set either this or etcd.password_file")
	}
	if e.Username == "" && (e.Password != "" || e.PasswordFile != "") {
		v.fail("etcd.username", "a password needs a user")
	}
	if e.Username != "" && e.Password == "" && e.PasswordFile == "" {
		v.fail("etcd.password_file", "a user needs a password")
	}
	v.pair("etcd.tls", e.TLS.CertFile, e.TLS.KeyFile)
	v.duration("etcd.dial_timeout", e.DialTimeout, 100*time.Millisecond, time.Minute)
}

func (e Embedded) check(v *checker, node string) {
	v.dialled("etcd.embedded.client_listen", e.ClientListen)
	v.dialled("etcd.embedded.peer_listen", e.PeerListen)
	v.oneOf("etcd.embedded.initial_cluster_state", e.InitialClusterState, []string{ClusterNew, ClusterExisting})
	if e.InitialClusterToken == "" {
		v.fail("etcd.embedded.initial_cluster_token", "must not be empty")
	}
	if e.QuotaBytes < 16*MiB || e.QuotaBytes > 8*GiB {
		v.fail("etcd.embedded.quota_bytes", "%s is outside 16MiB–8GiB", e.QuotaBytes)
	}
	v.duration("etcd.embedded.compaction_retention", e.CompactionRetention, time.Minute, 24*time.Hour)

	if t := e.PeerTLS; t.Enabled() && (t.CAFile == "" || t.CertFile == "" || t.KeyFile == "") {
		v.fail("etcd.embedded.peer_tls", "ca_file, cert_file and key_file belong together: members check each other both ways")
	}

	const path = "etcd.embedded.initial_cluster"
	members, err := e.Members(node)
	if err != nil {
		v.errs = append(v.errs, fmt.Errorf("%s%w", path, err)) // it begins with the entry's [index]
		return
	}
	names := map[string]bool{}
	for i, m := range members {
		if names[m.Name] {
			v.fail(fmt.Sprintf("%s[%d]", path, i), "%q is there twice", m.Name)
		}
		names[m.Name] = true
	}
	if !names[node] {
		v.fail(path, "this node (%s) is not in it", node)
	}
	if len(e.InitialCluster) == 0 && e.InitialClusterState == ClusterExisting {
		v.fail(path, "joining an existing cluster needs its members")
	}
	if host, _, err := net.SplitHostPort(e.PeerListen); len(e.InitialCluster) == 0 && err == nil && isWildcard(host) {
		v.fail(path, "must be set where etcd.embedded.peer_listen is a wildcard: others cannot reach it")
	}
}

func (c *checker) between(path string, n, least, most int64) {
	if n < least || n > most {
		c.fail(path, "%d is outside %d–%d", n, least, most)
	}
}

func (c *checker) duration(path string, d, least, most time.Duration) {
	if d < least || d > most {
		c.fail(path, "%s is outside %s–%s", d, least, most)
	}
}

// lease checks a TTL: etcd counts whole seconds and grants none under 2s.
func (c *checker) lease(path string, ttl time.Duration) {
	c.duration(path, ttl, 2*time.Second, time.Minute)
	if ttl%time.Second != 0 {
		c.fail(path, "%s is not a whole number of seconds", ttl)
	}
}

func (c *checker) oneOf(path, value string, allowed []string) {
	if !slices.Contains(allowed, value) {
		c.fail(path, "%q is not one of %s", value, strings.Join(allowed, ", "))
	}
}

func (c *checker) pair(section, cert, key string) {
	if (cert == "") != (key == "") {
		c.fail(section+".cert_file", "set both this and %s.key_file, or neither", section)
	}
}

// listener checks host:port, where port may be 0 and host a wildcard.
func (c *checker) listener(path, address string) { c.address(path, address, 0) }

// dialled checks host:port with a real port.
func (c *checker) dialled(path, address string) { c.address(path, address, 1) }

func (c *checker) address(path, address string, leastPort int) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		var n int
		if n, err = strconv.Atoi(port); err == nil && n >= leastPort && n <= 65535 {
			return
		}
	}
	c.fail(path, "%q is not host:port with a port of %d–65535", address, leastPort)
}
