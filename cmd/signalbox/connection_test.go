package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// No error shows a password, whatever is wrong with the URL or behind it.
func TestPasswordIsNeverPrinted(t *testing.T) {
	t.Parallel()
	away := redistest.Address(t)
	locked := redistest.New(t, "--requirepass", "another")
	for name, url := range map[string]string{
		"away":         "redis://ann:s3cret@" + away + "/0",
		"wrong":        "redis://ann:s3cret@" + locked.Addr(),
		"no scheme":    "ann:s3cret@127.0.0.1:1",
		"a bad scheme": "http://ann:s3cret@127.0.0.1:1",
		"a slash":      "redis://127.0.0.1:/s3cret@127.0.0.1:1",
		"a percent":    "redis://ann:%s3cret@127.0.0.1:1",
		"a bad port":   "redis://ann:x@127.0.0.1:s3cret",
		"a bad db":     "redis://ann:x@127.0.0.1:1/s3cret",
		"an option":    "redis://ann:x@127.0.0.1:1/0?s3cret=1",
		"a path":       "unix://ann:s3cret@",
	} {
		for _, more := range [][]string{nil, {"--cluster"}, {"--sentinel", away, "--master", "m"}} {
			sh := newShell(t, locked)
			out, errs, code := sh.run(append([]string{"queue", "ls", "--redis", url}, more...)...)
			if code == 0 || strings.Contains(out+errs, "s3cret") || strings.Count(errs, "\n") != 1 {
				t.Errorf("%s, %v: status %d, %q, %q", name, more, code, out, errs)
			}
			sh.env["REDIS_URL"] = url
			for _, args := range [][]string{{"queue", "ls"}, {"--help"}, {"queue", "ls", "--help"}} {
				if out, errs, _ := sh.run(append(args, more...)...); strings.Contains(out+errs, "s3cret") {
					t.Errorf("%s, %v by REDIS_URL: %q, %q", name, args, out, errs)
				}
			}
		}
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	locked := redistest.New(t, "--requirepass", "s3cret", "--unixsocket", filepath.Join(socketDir(t), "s"))
	sh := newShell(t, locked)
	sh.fails(exitFailure, []string{"NOAUTH", "REDIS_PASSWORD"}, "queue", "ls")
	sh.ok("queue", "ls", "--redis", "redis://default:s3cret@"+locked.Addr())
	sh.env["REDIS_PASSWORD"] = "s3cret"
	sh.ok("queue", "ls")
	sh.env["REDIS_PASSWORD"] = "wrong"
	sh.fails(exitFailure, []string{"WRONGPASS", "REDIS_PASSWORD"}, "queue", "ls")
}

// socketDir returns a folder whose path is short enough for a socket.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(socketDir(t), "s")
	sh := newShell(t, redistest.New(t, "--unixsocket", socket))
	sh.ok("enqueue", "mail", "--after", "1h")
	sh.env["REDIS_URL"] = "unix://" + socket
	if out := sh.ok("queue", "ls"); !strings.Contains(out, "default  active") {
		t.Error(out)
	}
	sh.fails(exitAway, []string{"/nosuch/socket", "no such file"}, "queue", "ls", "--redis", "unix:///nosuch/socket")
}

// A Redis that refuses, and one that is silent, are told apart from a failure, within the time that was given.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	addr := redistest.Address(t)
	sh := newShell(t, srv)
	sh.fails(exitAway, []string{addr, "connection refused", "REDIS_URL"}, "queue", "ls", "--redis", "redis://"+addr)
	sh.fails(exitAway, []string{addr, "REDIS_URL"}, "queue", "ls", "--cluster", "--redis", "redis://"+addr)
	sh.fails(exitAway, []string{addr, "master m", "REDIS_URL"}, "queue", "ls", "--sentinel", addr, "--master", "m")

	if got := short(os.ErrDeadlineExceeded); got != late { // as go-redis says it of a deadline that has passed before it reads
		t.Error(got)
	}
	proxy := redistest.NewProxy(t, srv.Addr())
	proxy.Pause()
	silent := newShell(t, proxy)
	begin := time.Now()
	silent.fails(exitAway, []string{proxy.Addr(), "no reply in time", "--timeout"}, "queue", "ls", "--timeout", "200ms")
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	// The timeout is that of all tries of a call together.
	once := redistest.NewProxy(t, srv.Addr())
	_, free := once.HoldReplies(redistest.Command("info"))
	defer free()
	begin = time.Now()
	newShell(t, once).fails(exitAway, []string{once.Addr(), "no reply in time", "--timeout"}, "queue", "ls", "--timeout", "3s")
	if took := time.Since(begin); took > 10*time.Second { // four tries would take 12 s
		t.Errorf("without a reply to INFO it took %v", took)
	}
	var seeds []string
	for range 8 {
		seed := redistest.NewProxy(t, srv.Addr())
		seed.Pause()
		seeds = append(seeds, seed.Addr())
	}
	begin = time.Now()
	silent.fails(exitAway, []string{seeds[0], seeds[7], "no reply in time"}, "queue", "ls", "--cluster", "--timeout", "1s",
		"--redis", "redis://"+seeds[0]+"?addr="+strings.Join(seeds[1:], "&addr="))
	if took := time.Since(begin); took > 10*time.Second { // each seed is asked several times
		t.Errorf("a Cluster: it took %v", took)
	}
	sh.fails(exitUsage, []string{"--timeout"}, "queue", "ls", "--timeout", "0s")
}

// An interrupted command ends at once, also while Redis is silent.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	held, free := proxy.HoldReplies(redistest.Command("info"))
	defer free()
	sh := newShell(t, proxy)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-held
		stop()
	}()
	late := time.AfterFunc(15*time.Second, func() {
		t.Error("it waits for Redis")
		free()
	})
	defer late.Stop()
	out, errs, code := sh.runIn(ctx, "queue", "ls", "--timeout", "10m")
	if code != exitInterrupted || out != "" || errs != "signalbox: interrupted\n" {
		t.Errorf("%q, %q, %d", out, errs, code)
	}
}

func TestConnectionUsage(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	for _, tc := range []struct {
		args  string
		parts []string
	}{
		{"--sentinel localhost:1", []string{"--sentinel and --master need each other"}},
		{"--master m", []string{"--sentinel and --master need each other"}},
		{"--cluster --sentinel localhost:1 --master m", []string{"--cluster", "--sentinel"}},
		{"--tls-ca /nosuchfile", []string{"--tls-ca", "nosuchfile"}},
		{"--tls-ca connection_test.go", []string{"--tls-ca", "no certificate"}},
		{"--tls-cert a", []string{"--tls-cert and --tls-key"}},
		{"--tls-key a", []string{"--tls-cert and --tls-key"}},
		{"--tls-key /nosuchfile --tls-cert /nosuchfile", []string{"nosuchfile"}},
		{"-o yaml", []string{"yaml", "table or json"}},
		{"--colour", []string{"unknown flag: --colour"}},
		{"--namespace a:b", []string{"a:b"}},
	} {
		sh.fails(exitUsage, tc.parts, append([]string{"queue", "ls"}, strings.Fields(tc.args)...)...)
	}
	sh.fails(exitUsage, []string{`no command "quue"`, "Did you mean queue?"}, "quue")
	sh.fails(exitUsage, []string{`no command "stop"`, "ls, stats, memory, pause"}, "queue", "stop")
	sh.fails(exitUsage, []string{"queue pause QUEUE"}, "queue", "pause")
}

// The namespace is that of the flag, of the environment, or the default one.
func TestNamespace(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "mail", "--queue", "here", "--after", "1h")
	other := redistest.Name(t)
	sh.ok("enqueue", "mail", "--queue", "there", "--after", "1h", "--namespace", other)
	for namespace, want := range map[string]string{sh.namespace: "here", other: "there"} {
		var got struct{ Queues []queueJSON }
		if sh.into(&got, "queue", "ls", "-n", namespace); len(got.Queues) != 1 || got.Queues[0].Queue != want {
			t.Errorf("%s: %+v", namespace, got)
		}
	}
}

// While the master is away that has the list of queues, commands show what the others have, and say that it isn't all. Each master is that one in turn, so one of
// them is the first that a new client of go-redis asks where any will do.
func TestClusterWithoutAMaster(t *testing.T) {
	t.Parallel()
	for dead := range 3 {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			t.Parallel()
			testClusterWithoutAMaster(t, dead)
		})
	}
}

func testClusterWithoutAMaster(t *testing.T, dead int) {
	cluster := redistest.Cluster(t)
	rdb := cluster.Client()
	sh := newShell(t, cluster.Masters()[0])
	master := func(queue string) int {
		return int(min(rdb.ClusterKeySlot(t.Context(), "{"+sh.namespace+":"+queue+"}").Val()*3/16384, 2))
	}
	for n := 0; master("") != dead; n++ {
		sh.namespace = fmt.Sprint(redistest.Name(t), n)
	}
	sh.env["SIGNALBOX_NAMESPACE"] = sh.namespace
	queue := "mail"
	for n := 0; master(queue) == dead; n++ {
		queue = fmt.Sprint("mail", n)
	}
	for _, m := range cluster.Masters() {
		if err := m.Client().ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err(); err != nil {
			t.Fatal(err)
		}
	}
	sh.env["REDIS_URL"] = "redis://" + cluster.Masters()[master(queue)].Addr()
	sh.ok("enqueue", "email.welcome", "-q", queue, "--id", "j1", "--cluster")
	cluster.Masters()[dead].Kill()
	sh.ok("job", "show", queue, "j1", "--cluster")
	for _, args := range [][]string{{"queue", "ls"}, {"queue", "stats"}, {"job", "ls"}, {"doctor"}, {"top", "--once", "--every", "1s"}} {
		out, errs, code := sh.run(append(args, "--cluster")...)
		if code != exitAway || !strings.Contains(out, queue) && args[0] != "doctor" || !strings.Contains(errs, "some queues are left out") || !strings.Contains(errs, cluster.Masters()[dead].Addr()) || strings.Contains(out+errs, "There is no") {
			t.Errorf("%v: %d, %s\n%s", args, code, errs, out)
		}
	}
	for _, args := range [][]string{{"worker", "ls"}, {"cron", "ls"}, {"outbox", "ls"}} {
		if out, errs, code := sh.run(append(args, "--cluster")...); code != exitAway || !strings.Contains(errs, "some queues are left out") || strings.Contains(out+errs, "There is no") {
			t.Errorf("%v: %d, %s\n%s", args, code, errs, out)
		}
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	sh := newShell(t, cluster.Masters()[0])
	for _, queue := range []string{"a", "b", "c", "d", "e"} { // of several masters
		sh.ok("enqueue", "mail", "--queue", queue, "--after", "1h", "--cluster")
		sh.ok("queue", "pause", queue, "--cluster")
	}
	var got struct{ Queues []queueJSON }
	if sh.into(&got, "queue", "ls", "--cluster"); len(got.Queues) != 5 || !got.Queues[4].Paused || got.Queues[4].Scheduled != 1 {
		t.Errorf("%+v", got)
	}
	for _, queue := range []string{"a", "b", "c"} {
		sh.ok("enqueue", "mail", "--queue", queue, "--id", "j1", "--cluster")
		if out := sh.ok("job", "ls", queue, "--state", "ready", "--cluster"); !strings.Contains(out, "j1  mail  ready") {
			t.Error(out)
		}
		sh.ok("job", "cancel", queue, "j1", "--cluster")
		same(t, sh.ok("job", "rm", queue, "--state", "cancelled", "--yes", "--cluster"), "1 job of queue "+queue+" deleted")
	}
	sh.ok("worker", "ls", "--cluster")
	sh.ok("lock", "ls", "*", "--cluster")
	sh.fails(exitUsage, []string{"add --cluster"}, "queue", "ls")
	plain := newShell(t, redistest.Start(t))
	plain.fails(exitFailure, []string{"leave --cluster out"}, "queue", "ls", "--cluster")
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	sentinels := redistest.Sentinel(t)
	sh := newShell(t, sentinels.Master())
	delete(sh.env, "REDIS_URL")
	where := []string{"--sentinel", strings.Join(sentinels.Addrs(), ","), "--master", redistest.MasterName}
	sh.ok(append([]string{"enqueue", "mail", "--after", "1h"}, where...)...)
	if out := sh.ok(append([]string{"queue", "ls"}, where...)...); !strings.Contains(out, "default  active") {
		t.Error(out)
	}
	sh.ok(append([]string{"enqueue", "mail", "--id", "j1"}, where...)...)
	same(t, sh.ok(append([]string{"job", "cancel", "default", "j1"}, where...)...), "job j1 was ready: cancelled")
	sh.ok(append([]string{"job", "show", "default", "j1"}, where...)...)
	sh.fails(exitAway, []string{"master nobody"}, "queue", "ls", "--sentinel", strings.Join(sentinels.Addrs(), ","), "--master", "nobody", "--timeout", "2s")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	addr, ca := secured(t, srv.Addr())
	sh := newShell(t, srv)
	sh.ok("queue", "ls", "--redis", "rediss://"+addr, "--tls-ca", ca)
	sh.ok("queue", "ls", "--redis", "redis://"+addr, "--tls-ca", ca)
	sh.ok("queue", "ls", "--redis", "redis://"+addr, "--tls", "--tls-insecure")
	sh.ok("queue", "ls", "--redis", "redis://"+addr, "--tls-ca", ca, "--tls-server-name", "redis.example")
	sh.fails(exitFailure, []string{"certificate", "--tls-ca"}, "queue", "ls", "--redis", "rediss://"+addr)
	sh.fails(exitFailure, []string{"other.example", "--tls-server-name"}, "queue", "ls", "--redis", "rediss://"+addr, "--tls-ca", ca, "--tls-server-name", "other.example")
	sh.fails(exitAway, []string{"is there TLS on that port?"}, "queue", "ls", "--tls", "--timeout", "300ms")
}

// secured returns the address of a TLS server before a plain one, and the file of the authority that signed its certificate.
func secured(t *testing.T, plain string) (addr, ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"redis.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer client.Close()
				server, err := net.Dial("tcp", plain)
				if err != nil {
					return
				}
				conns.Go(func() {
					_, _ = io.Copy(client, server)
					_ = client.Close()
				})
				_, _ = io.Copy(server, client)
				_ = server.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	return l.Addr().String(), ca
}
