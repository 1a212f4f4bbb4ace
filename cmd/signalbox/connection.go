package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/pflag"

	"github.com/signalbox-go/signalbox/inspect"
)

const defaultURL = "redis://localhost:6379"

// A connection is where Redis is, and how to get there.
type connection struct {
	url       string
	namespace string
	sentinels []string
	master    string
	cluster   bool
	tls       bool
	ca        string
	cert, key string
	server    string
	insecure  bool
	timeout   time.Duration

	where   string // the address, for errors; never with a password
	secured bool   // by TLS
}

func (c *connection) register(flags *pflag.FlagSet) {
	// No default is shown that comes from the environment: a URL may have a password in it.
	flags.StringVar(&c.url, "redis", "", "URL of Redis: redis://, rediss:// or unix:// (default REDIS_URL, or "+defaultURL+")")
	flags.StringVarP(&c.namespace, "namespace", "n", "", `namespace of the queues (default SIGNALBOX_NAMESPACE, or "default")`)
	flags.StringSliceVar(&c.sentinels, "sentinel", nil, "addresses of Sentinels as `host:port,...`; needs --master")
	flags.StringVar(&c.master, "master", "", "name of the master that the Sentinels watch")
	flags.BoolVar(&c.cluster, "cluster", false, "Redis is a Cluster; the URL has one of its nodes")
	flags.BoolVar(&c.tls, "tls", false, "use TLS, as rediss:// does")
	flags.StringVar(&c.ca, "tls-ca", "", "`file` with the certificates of the authorities to trust (PEM)")
	flags.StringVar(&c.cert, "tls-cert", "", "`file` with the client's certificate (PEM); needs --tls-key")
	flags.StringVar(&c.key, "tls-key", "", "`file` with the client's key (PEM)")
	flags.StringVar(&c.server, "tls-server-name", "", "`name` that the server's certificate must have, if it is not the host's")
	flags.BoolVar(&c.insecure, "tls-insecure", false, "don't check the server's certificate")
	flags.DurationVar(&c.timeout, "timeout", 10*time.Second, "bound of each call to Redis")
}

// options returns the options of a client. Its errors never have the URL in them: it may contain a password.
func (c *connection) options(env func(string) string) (*redis.UniversalOptions, *tls.Config, error) {
	if c.timeout <= 0 {
		return nil, nil, usage("--timeout %v: want more than 0", c.timeout)
	}
	o := &redis.UniversalOptions{
		ContextTimeoutEnabled: true, DialTimeout: c.timeout, ReadTimeout: c.timeout, WriteTimeout: c.timeout, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	secure, err := c.address(o, env)
	if err != nil {
		return nil, nil, err
	}
	if o.Username == "" && o.Password == "" {
		o.Username, o.Password = env("REDIS_USERNAME"), env("REDIS_PASSWORD")
	}
	secure, err = c.secure(secure)
	c.secured = secure != nil
	return o, secure, err
}

// address fills in what the URL and the flags of Sentinel and Cluster say.
func (c *connection) address(o *redis.UniversalOptions, env func(string) string) (secure *tls.Config, err error) {
	url, from := c.url, "--redis"
	if url == "" {
		url, from = env("REDIS_URL"), "REDIS_URL"
	}
	if url == "" {
		url = defaultURL
	}
	if c.cluster {
		if len(c.sentinels) > 0 || c.master != "" {
			return nil, usage("--cluster and --sentinel are given together: want one of them")
		}
		u, err := redis.ParseClusterURL(url)
		if err != nil {
			return nil, usage("%s is not the URL of a Cluster: want redis://[user:password@]host:port[?addr=host:port...] or rediss://", from)
		}
		o.IsClusterMode, o.Addrs, o.Username, o.Password = true, u.Addrs, u.Username, u.Password
		c.where = strings.Join(u.Addrs, ", ") + " (Cluster)"
		if u.TLSConfig != nil {
			u.TLSConfig.ServerName = "" // each node has its own
		}
		return u.TLSConfig, nil
	}
	u, err := redis.ParseURL(url)
	if err != nil {
		return nil, usage("%s is no URL of Redis: want redis://[user:password@]host:port[/db], rediss:// or unix://[user:password@]/path; special characters of the password as %%xx", from)
	}
	if u.Network == "tcp" {
		if _, port, err := net.SplitHostPort(u.Addr); err == nil {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return nil, usage("%s has port %.20s: want 1 to 65535", from, port)
			}
		}
	}
	o.Addrs, o.DB, o.Username, o.Password = []string{u.Addr}, u.DB, u.Username, u.Password
	c.where = u.Addr
	if (len(c.sentinels) > 0) != (c.master != "") {
		return nil, usage("--sentinel and --master need each other")
	}
	if c.master != "" {
		o.Addrs, o.MasterName = c.sentinels, c.master
		o.SentinelUsername, o.SentinelPassword = env("REDIS_SENTINEL_USERNAME"), env("REDIS_SENTINEL_PASSWORD")
		c.where = "master " + c.master + " of the Sentinels " + strings.Join(c.sentinels, ", ")
		if u.TLSConfig != nil {
			u.TLSConfig.ServerName = ""
		}
	}
	return u.TLSConfig, nil
}

// secure returns what the TLS flags make of the URL's configuration. nil is no TLS.
func (c *connection) secure(t *tls.Config) (*tls.Config, error) {
	if t == nil && !c.tls && c.ca == "" && c.cert == "" && c.key == "" && c.server == "" && !c.insecure {
		return nil, nil
	}
	if t == nil {
		t = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.insecure {
		t.InsecureSkipVerify = true
	}
	if c.server != "" {
		t.ServerName = c.server
	}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, usage("--tls-ca: %v", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("--tls-ca: %s has no certificate in PEM", c.ca)
		}
	}
	if (c.cert != "") != (c.key != "") {
		return nil, usage("--tls-cert and --tls-key need each other")
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, usage("--tls-cert, --tls-key: %v", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// connect returns a client that has reached Redis. The app closes it.
func (a *app) connect(ctx context.Context) (redis.UniversalClient, error) {
	rdb, h, err := a.reach(ctx, &a.connection, a.env, "--cluster")
	if err != nil {
		return nil, err
	}
	a.rdb, a.hook = rdb, h
	return rdb, nil
}

// reach returns a client that has reached the Redis of a connection, and its hook. The app closes it. clusterFlag is the flag that says that it is a Cluster.
func (a *app) reach(ctx context.Context, conn *connection, env func(string) string, clusterFlag string) (redis.UniversalClient, *hook, error) {
	o, secure, err := conn.options(env)
	if err != nil {
		return nil, nil, err
	}
	o.Dialer = a.dialer(secure)
	rdb := redis.NewUniversalClient(o)
	a.closers = append(a.closers, rdb.Close)
	h := &hook{timeout: conn.timeout, listed: make(chan struct{})}
	rdb.AddHook(h)
	info, err := serverInfo(ctx, rdb, conn.timeout)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "NOPERM"): // it answers
	case err != nil && away(err) && a.stopped.Err() == nil:
		return nil, nil, conn.away(err)
	case err != nil:
		return nil, nil, err
	case strings.Contains(info, "redis_mode:cluster") && !o.IsClusterMode:
		return nil, nil, usage("Redis at %s is a Cluster: add %s", conn.where, clusterFlag)
	}
	return rdb, h, nil
}

// serverInfo returns what a server says of itself: of a Cluster the first master that answers within the timeout. An INFO of a Cluster's client goes to one master, and fails if that is away.
func serverInfo(ctx context.Context, rdb redis.UniversalClient, timeout time.Duration) (string, error) {
	cluster, is := rdb.(*redis.ClusterClient)
	if !is {
		return rdb.Info(ctx, "server").Result()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout) // no hook bounds how long ForEachMaster asks for the masters
	defer cancel()
	first, all := make(chan string, 1), make(chan error, 1)
	go func() { // the app closes the client, and with it what is still asked
		all <- cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			info, err := c.Info(ctx, "server").Result()
			if err == nil {
				select {
				case first <- info:
				default:
				}
			}
			return err
		})
	}()
	select {
	case info := <-first:
		return info, nil
	case err := <-all:
		select {
		case info := <-first:
			return info, nil
		default:
			return "", err
		}
	}
}

// dialer returns a dialer whose connections end when the command is interrupted. A client of go-redis doesn't look at its
// context while it waits for a reply.
func (a *app) dialer(secure *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, a.connection.timeout)
		defer cancel()
		defer context.AfterFunc(a.stopped, cancel)()
		var d interface {
			DialContext(ctx context.Context, network, addr string) (net.Conn, error)
		} = &net.Dialer{}
		if secure != nil {
			d = &tls.Dialer{Config: secure}
		}
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(a.stopped, func() { _ = conn.Close() })
		return conn, nil
	}
}

// inspector returns an inspector that has reached Redis.
func (a *app) inspector(ctx context.Context) (*inspect.Inspector, error) {
	rdb, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return inspect.New(rdb, inspect.Config{Namespace: a.namespace(), Operator: cmp.Or(a.env("SIGNALBOX_OPERATOR"), a.env("USER"))})
}

func (a *app) namespace() string {
	if a.connection.namespace != "" {
		return a.connection.namespace
	}
	return cmp.Or(a.env("SIGNALBOX_NAMESPACE"), "default")
}

// A hook bounds each call of a client, with its repetitions. A list of a million jobs may take its time. No single call may.
type hook struct {
	timeout time.Duration
	listed  chan struct{} // closed when a queue was put into the registry of queues
	once    sync.Once
}

func (h *hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, h.timeout)
		defer cancel()
		err := next(ctx, cmd)
		if cmd.Name() == "sadd" {
			h.once.Do(func() { close(h.listed) })
		}
		return err
	}
}

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, h.timeout)
		defer cancel()
		return next(ctx, cmds)
	}
}

// registryTimeout bounds how long an enqueue waits for the registry.
const registryTimeout = 2 * time.Second

// registered waits until a scheduler has put its queue into the registry, from which queues are listed. It does so beside the
// enqueue, and this process is about to end.
func (h *hook) registered(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	select {
	case <-h.listed:
	case <-ctx.Done():
	}
}

// clock returns the time by the clock of Redis, which the times of jobs are by.
func (a *app) clock(ctx context.Context) time.Time {
	if now, err := a.rdb.Time(ctx).Result(); err == nil {
		return now
	}
	return time.Now()
}
