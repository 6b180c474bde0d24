//go:build proof

package hatest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/migrate"
)

// settings are the parameters of a test. The zero value is the setup of
// docs/operating/high-availability.md, with Patroni's default times.
type settings struct {
	nodes        int  // default 3
	async        bool // no synchronous standby
	noFailsafe   bool
	haproxy      bool
	ttl          int // seconds; default 30
	loop, resend int // loop_wait and retry_timeout, seconds; default 10
}

// quick has the shortest times that Patroni allows, for tests that run at every change.
var quick = settings{ttl: 20, loop: 3, resend: 5}

// A cluster is etcd, PostgreSQL servers under Patroni, and optionally HAProxy.
type cluster struct {
	*testing.T
	*host
	settings
	bin      string
	etcd     *os.Process
	etcdPort int
	nodes    []*node
	proxy    int // port of HAProxy
}

// A node is one server and its Patroni.
type node struct {
	name      string
	port, api int // listening ports
	// clients forwards from clients to the server, peers from other nodes to the server, rest from
	// other nodes to Patroni, and dcs from Patroni to etcd.
	clients, peers, rest, dcs *forwarder
	patroni                   *os.Process
	data                      string
}

const limit = 3 * time.Minute // of one step on a busy machine

// newCluster starts a cluster with Pawl's schema in database app. It returns when all standbys
// stream.
func newCluster(t *testing.T, s settings) *cluster {
	t.Helper()
	defaulted := func(n *int, to int) {
		if *n == 0 {
			*n = to
		}
	}
	defaulted(&s.nodes, 3)
	defaulted(&s.ttl, 30)
	defaulted(&s.loop, 10)
	defaulted(&s.resend, 10)
	c := &cluster{T: t, host: newHost(t), settings: s, bin: binaries(t), etcdPort: freePort(t)}
	peer := freePort(t)
	c.etcd = c.start(t, "etcd", "etcd", "--name", "pawl", "--data-dir", filepath.Join(c.dir, "etcd"),
		"--listen-client-urls", local(c.etcdPort), "--advertise-client-urls", local(c.etcdPort),
		"--listen-peer-urls", local(peer), "--initial-advertise-peer-urls", local(peer), "--initial-cluster", "pawl="+local(peer))
	for i := range s.nodes {
		c.addNode(i + 1)
	}
	c.until("etcd knows its version", c.etcdIsReady) // otherwise Patroni exits
	c.nodes[0].run(c)
	c.until("a leader", func() bool { return c.leader() != nil })
	for _, n := range c.nodes[1:] {
		n.run(c)
	}
	if s.haproxy {
		c.startProxy()
	}
	c.settle()
	c.install()
	return c
}

func (c *cluster) etcdIsReady() bool {
	answer, err := quickly.Get(local(c.etcdPort) + "/version")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	var said struct {
		Cluster string `json:"etcdcluster"`
	}
	return json.NewDecoder(answer.Body).Decode(&said) == nil && said.Cluster != "" && said.Cluster != "not_decided"
}

func local(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

// binaries returns the newest package directory that has everything that Patroni needs.
func binaries(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_rewind")
	if len(found) == 0 {
		t.Fatal("PostgreSQL is missing: apt-get install postgresql")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1])
}

func (c *cluster) addNode(i int) {
	n := &node{name: "pg" + strconv.Itoa(i), port: freePort(c.T), api: freePort(c.T)}
	n.clients, n.peers = forward(c.T, n.port), forward(c.T, n.port)
	n.rest, n.dcs = forward(c.T, n.api), forward(c.T, c.etcdPort)
	n.data = filepath.Join(c.dir, "data"+strconv.Itoa(i))
	type object = map[string]any
	trust := []string{"local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"}
	config, err := json.Marshal(object{ // JSON is valid YAML
		"scope": "pawl", "name": n.name,
		"restapi": object{"listen": "127.0.0.1:" + strconv.Itoa(n.api), "connect_address": n.rest.addr()},
		"etcd3":   object{"hosts": []string{n.dcs.addr()}, "use_proxies": true},
		"bootstrap": object{
			"dcs": object{"ttl": c.ttl, "loop_wait": c.loop, "retry_timeout": c.resend, "maximum_lag_on_failover": 64 << 20,
				"synchronous_mode": !c.async, "synchronous_mode_strict": !c.async, "failsafe_mode": !c.noFailsafe,
				"postgresql": object{"use_pg_rewind": true, "use_slots": true,
					"parameters": object{"wal_log_hints": "on", "max_connections": 120, "shared_buffers": "64MB", "max_wal_senders": 8, "wal_keep_size": "128MB",
						"unix_socket_directories": c.dir}}},
			"initdb": []any{object{"encoding": "UTF8"}, object{"locale": "C.UTF-8"}, "data-checksums"},
			"pg_hba": trust},
		"postgresql": object{"listen": "127.0.0.1:" + strconv.Itoa(n.port), "connect_address": n.peers.addr(), "data_dir": n.data, "bin_dir": c.bin, "pg_hba": trust,
			"authentication": object{"replication": object{"username": "repl", "password": "r"}, "superuser": object{"username": "postgres", "password": "s"},
				"rewind": object{"username": "rewind", "password": "w"}}},
	})
	if err != nil {
		c.Fatal(err)
	}
	c.write(c.T, n.name+".yml", config)
	c.nodes = append(c.nodes, n)
}

func (n *node) run(c *cluster) {
	n.patroni = c.start(c.T, n.name, "patroni", filepath.Join(c.dir, n.name+".yml"))
}

// startProxy starts HAProxy with the configuration of docs/operating/high-availability.md.
func (c *cluster) startProxy() {
	c.proxy = freePort(c.T)
	text := fmt.Sprintf(`defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
frontend primary
  bind 127.0.0.1:%d
  default_backend primary
backend primary
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
`, c.proxy)
	for _, n := range c.nodes {
		text += fmt.Sprintf("  server %s 127.0.0.1:%d check port %d\n", n.name, n.clients.port(), n.rest.port())
	}
	c.start(c.T, "haproxy", "/usr/sbin/haproxy", "-f", c.write(c.T, "haproxy.cfg", []byte(text)))
}

// install creates role and database app, Pawl's schema and the tables of the load.
func (c *cluster) install() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c.admin(func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "create role app login")
		if err == nil {
			_, err = conn.Exec(ctx, "create database app owner app")
		}
		return err
	})
	conn, err := pgx.Connect(ctx, c.url("app"))
	if err != nil {
		c.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := migrate.Up(ctx, conn, nil); err != nil {
		c.Fatal(err)
	}
	if _, err := conn.Exec(ctx, tables); err != nil {
		c.Fatal(err)
	}
	// Every standby that may be promoted, also an asynchronous one, must have the schema.
	var end string
	if err := conn.QueryRow(ctx, "select pg_current_wal_lsn()::text").Scan(&end); err != nil {
		c.Fatal(err)
	}
	c.until("all standbys have the schema", func() bool {
		n, standbys := c.leader(), 0
		if n == nil {
			return false
		}
		err := n.admin(func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "select count(*) from pg_stat_replication as r where r.replay_lsn >= $1::text::pg_lsn and r.application_name like 'pg%'", end).Scan(&standbys)
		})
		return err == nil && standbys >= c.settings.nodes-1
	})
}

// url returns the URL of an application: through HAProxy, or with the hosts of all nodes.
func (c *cluster) url(user string) string {
	hosts := "127.0.0.1:" + strconv.Itoa(c.proxy)
	if c.proxy == 0 {
		var all []string
		for _, n := range c.nodes {
			all = append(all, n.clients.addr())
		}
		hosts = strings.Join(all, ",")
	}
	return "postgres://" + user + "@" + hosts + "/app?target_session_attrs=read-write&connect_timeout=3"
}

// admin runs do on the primary as the superuser, through a connection that no test cuts.
func (c *cluster) admin(do func(conn *pgx.Conn) error) {
	c.Helper()
	n := c.leader()
	if n == nil {
		c.Fatal("there is no leader")
	}
	if err := n.admin(do); err != nil {
		c.Fatal(err)
	}
}

func (n *node) admin(do func(conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres", n.port))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return do(conn)
}

// leader returns the node that reports itself as primary, or nil.
func (c *cluster) leader() *node {
	for _, n := range c.nodes {
		if n.is("primary") {
			return n
		}
	}
	return nil
}

var quickly = &http.Client{Timeout: 2 * time.Second}

// is asks a Patroni whether it has a role.
func (n *node) is(role string) bool {
	answer, err := quickly.Get(local(n.api) + "/" + role)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// ask sends a request to a Patroni. The response may come only after the action is complete.
func (n *node) ask(method, path string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, local(n.api)+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Timeout: limit}).Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		var said bytes.Buffer
		_, _ = said.ReadFrom(answer.Body)
		return fmt.Errorf("%s %s: %s %s", method, path, answer.Status, said.String())
	}
	return nil
}

// settle waits until all other nodes are streaming standbys of a leader, and Patroni knows the
// synchronous one.
func (c *cluster) settle() {
	c.Helper()
	c.until("all standbys stream", func() bool {
		n := c.leader()
		if n == nil {
			return false
		}
		var standbys, synchronous int
		err := n.admin(func(conn *pgx.Conn) error {
			return conn.QueryRow(context.Background(), `select count(*), count(*) filter (where r.sync_state in ('sync', 'quorum'))
  from pg_stat_replication as r where r.state = 'streaming' and r.application_name like 'pg%'`).Scan(&standbys, &synchronous)
		})
		known := func(other *node) bool { return other.is("sync") }
		return err == nil && standbys >= c.settings.nodes-1 && (c.async || synchronous > 0 && slices.ContainsFunc(c.others(n), known))
	})
}

func (c *cluster) until(what string, reached func() bool) {
	c.Helper()
	for end := time.Now().Add(limit); !reached(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("not reached: %s", what)
		}
	}
}

// others returns all nodes except one.
func (c *cluster) others(than *node) (all []*node) {
	for _, n := range c.nodes {
		if n != than {
			all = append(all, n)
		}
	}
	return all
}

// kill kills Patroni and its server. Clients then see a machine whose kernel still refuses
// connections.
func (n *node) kill(c *cluster) {
	c.Helper()
	_ = n.patroni.Signal(syscall.SIGKILL)
	text, err := os.ReadFile(filepath.Join(n.data, "postmaster.pid"))
	if err != nil {
		c.Fatal(err)
	}
	postmaster, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		c.Fatal(err)
	}
	children := childrenOf(postmaster)
	_ = syscall.Kill(postmaster, syscall.SIGKILL)
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// childrenOf returns the child processes of a process.
func childrenOf(parent int) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// isolate partitions one node and all clients from the other nodes and etcd.
func (c *cluster) isolate(n *node) (heal func()) {
	cut := []*forwarder{n.peers, n.rest, n.dcs}
	for _, other := range c.others(n) {
		cut = append(cut, other.clients)
		other.rest.hold("POST /failsafe") // sent only by a leader
	}
	return c.frozen(cut)
}

// silence cuts all connections to and from a node.
func (c *cluster) silence(n *node) (heal func()) {
	cut := []*forwarder{n.peers, n.rest, n.dcs, n.clients}
	for _, other := range c.others(n) {
		other.rest.hold("POST /failsafe")
	}
	return c.frozen(cut)
}

func (c *cluster) frozen(cut []*forwarder) (heal func()) {
	for _, f := range cut {
		f.freeze()
	}
	return func() {
		for _, n := range c.nodes {
			for _, f := range []*forwarder{n.clients, n.peers, n.rest, n.dcs} {
				f.thaw()
			}
		}
	}
}
