// Package server looks at servers and clients of Redis: whether a server would lose jobs, what a user may call, and how to reach it. It knows no job.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// Findings are the results of an inspection of a client's servers. A value is "" if the servers don't report it.
type Findings struct {
	Version     string // Redis's version, or the version of Redis that another engine says it is like
	Mode        string // standalone, sentinel or cluster
	Persistence string // "AOF" or "no AOF"
	Eviction    string // the maxmemory-policy

	Wrong   []string // reasons why the server would lose jobs; nobody should start on it
	Passing bool     // the only such reason is that the server is a replica, which may change in a failover
	Doubts  []string // less serious problems, for the log

	WrongSince, DoubtsSince time.Time // when an inspection first found anything in Wrong, and in Doubts, and each later one did, too
}

// Err returns an error that names everything in Wrong and wraps signalbox.ErrInvalid. It returns nil if Wrong is empty.
func (f *Findings) Err() error {
	if len(f.Wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%w: this Redis can't be used: %s", signalbox.ErrInvalid, strings.Join(f.Wrong, "; "))
}

// follows takes over since when there was something wrong, and a doubt, from the inspection before.
func (f *Findings) follows(before *Findings) {
	if len(before.Wrong) > 0 {
		f.WrongSince = before.WrongSince
	}
	if len(before.Doubts) > 0 {
		f.DoubtsSince = before.DoubtsSince
	}
}

func (f *Findings) wrong(format string, args ...any) {
	f.Wrong = appendNew(f.Wrong, fmt.Sprintf(format, args...))
}

func (f *Findings) doubt(format string, args ...any) {
	f.Doubts = appendNew(f.Doubts, fmt.Sprintf(format, args...))
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) { // another master had the same finding
		return list
	}
	return append(list, s)
}

// Inspect looks at each master. It checks whether the server would delete jobs, whether it is a master, and whether the user may make
// the calls of the roles on the first 100 keys: one of each queue. INFO, CONFIG and ACL may all be denied: what the server or an ACL hides
// becomes a doubt. An error means that the server could not be asked because of the connection.
func Inspect(ctx context.Context, rdb redis.UniversalClient, keys []string, roles ...Role) (*Findings, error) {
	f, err := inspectAll(ctx, rdb, keys[:min(len(keys), 100)], roles)
	if f != nil {
		f.WrongSince = time.Now()
		f.DoubtsSince = f.WrongSince
	}
	return f, err
}

// inspectAll looks at each master.
func inspectAll(ctx context.Context, rdb redis.UniversalClient, keys []string, roles []Role) (*Findings, error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return inspectServer(ctx, rdb, keys, roles)
	}
	f := &Findings{}
	var mu sync.Mutex
	var errs []error
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
		one, err := inspectServer(ctx, rdb, keys, roles)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		f.add(one)
		return nil
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	slices.Sort(f.Wrong)
	slices.Sort(f.Doubts)
	return f, nil
}

// add adds the findings about another master.
func (f *Findings) add(o *Findings) {
	for _, field := range []struct {
		sum *string
		one string
	}{{&f.Version, o.Version}, {&f.Mode, o.Mode}, {&f.Persistence, o.Persistence}, {&f.Eviction, o.Eviction}} {
		switch {
		case *field.sum == "":
			*field.sum = field.one
		case field.one != "" && !slices.Contains(strings.Split(*field.sum, ", "), field.one):
			*field.sum += ", " + field.one
		}
	}
	f.Passing = (len(f.Wrong) == 0 || f.Passing) && (len(o.Wrong) == 0 || o.Passing)
	for _, s := range o.Wrong {
		f.Wrong = appendNew(f.Wrong, s)
	}
	for _, s := range o.Doubts {
		f.Doubts = appendNew(f.Doubts, s)
	}
}

// inspectServer looks at one server.
func inspectServer(ctx context.Context, rdb redis.UniversalClient, keys []string, roles []Role) (*Findings, error) {
	f := &Findings{}
	info, err := rdb.Info(ctx).Result()
	var answer redis.Error
	switch {
	case err == nil:
	case isAuth(err):
		f.wrong("it refused the credentials: %v", err)
		return f, nil
	case f.lacksDatabase(ctx, rdb, err):
		return f, nil
	case errors.As(err, &answer) && !isPassing(err):
		info = "" // an ACL denies it, or the server doesn't have this command
	default:
		return nil, err
	}
	f.readInfo(info)
	if f.Eviction == "" {
		if policy := configured(ctx, rdb, "maxmemory-policy"); policy != "" {
			f.judgePolicy(policy, configured(ctx, rdb, "maxmemory"))
		}
	}
	if f.Eviction == "" {
		f.doubt("it doesn't say what its maxmemory-policy is (INFO: %s); see to it that it is noeviction, or allow the user +info", reason(err))
	}
	if err := f.checkPermits(ctx, rdb, keys, roles); err != nil {
		return nil, err
	}
	return f, nil
}

func reason(err error) string {
	if err == nil {
		return "no maxmemory_policy in it"
	}
	return err.Error()
}

// configured returns a parameter of the server's configuration, or "" if the server doesn't show it.
func configured(ctx context.Context, rdb redis.UniversalClient, name string) string {
	v, err := rdb.ConfigGet(ctx, name).Result()
	if err != nil {
		return ""
	}
	return v[name]
}

// isAuth reports whether the server refused the credentials.
func isAuth(err error) bool {
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "ERR invalid password", "ERR AUTH"} {
		if strings.HasPrefix(err.Error(), prefix) {
			return true
		}
	}
	return false
}

// isPassing reports whether the server serves nobody for a while.
func isPassing(err error) bool {
	for _, prefix := range []string{"LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "TRYAGAIN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

func (f *Findings) readInfo(info string) {
	fields := fieldsOf(info)
	f.Version, f.Mode = fields["redis_version"], cmp.Or(fields["redis_mode"], fields["server_mode"]) // server_mode is Valkey's name for it
	switch fields["aof_enabled"] {
	case "1":
		f.Persistence = "AOF"
	case "0":
		f.Persistence = "no AOF"
	}
	if major, err := strconv.Atoi(strings.SplitN(f.Version, ".", 2)[0]); err == nil && major < 7 {
		f.wrong("it is version %s; Signalbox needs 7.0 or newer", f.Version)
	}
	if policy := fields["maxmemory_policy"]; policy != "" {
		f.judgePolicy(policy, fields["maxmemory"])
	}
	if fields["role"] == "slave" {
		f.Passing = len(f.Wrong) == 0
		f.wrong("it is a replica, and refuses writes; connect to the master, or through Sentinel or a Cluster client")
	}
}

// judgePolicy judges a maxmemory-policy. maxmemory is in bytes. It is "0" if there is no limit, and "" if it is not known.
func (f *Findings) judgePolicy(policy, maxmemory string) {
	f.Eviction = policy
	limited := maxmemory != "0"
	switch {
	case policy == "noeviction":
	case strings.HasPrefix(policy, "volatile-") && limited:
		f.doubt("its maxmemory-policy is %s. It deletes no job, but may delete the numbers by which a repeated call is recognised: "+
			"a job whose enqueueing is repeated just then may be enqueued twice, and a worker may lose its session, whose jobs then run again; set noeviction if you can", policy)
	case strings.HasPrefix(policy, "volatile-"):
	case limited:
		f.wrong("its maxmemory-policy is %s, so it deletes jobs and leases when memory is short; set maxmemory-policy noeviction", policy)
	default:
		f.doubt("its maxmemory-policy is %s: as soon as maxmemory is set, which is 0 now, it deletes jobs and leases; set maxmemory-policy noeviction", policy)
	}
}

// lacksDatabase reports whether the client can't use the database that it names.
func (f *Findings) lacksDatabase(ctx context.Context, rdb redis.UniversalClient, err error) bool {
	c, ok := rdb.(*redis.Client)
	switch {
	case !ok || c.Options().DB == 0:
	case redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "'select'"):
		who := user(ctx, rdb)
		f.wrong("user %s may not call SELECT, as the client's URL or Options name database %d; name none, or allow it with: ACL SETUSER %s +select", who, c.Options().DB, who)
		return true
	case redis.HasErrorPrefix(err, "DB index is out of range"):
		f.wrong("it has no database %d; name one below its setting databases in the client's URL or Options, or none", c.Options().DB)
		return true
	}
	return false
}

// checkPermits finds commands that the user may not call. Only servers from Redis 7.0 on can report that.
func (f *Findings) checkPermits(ctx context.Context, rdb redis.UniversalClient, keys []string, roles []Role) error {
	if len(roles) == 0 || len(keys) == 0 {
		return nil
	}
	lacks, err := lack(ctx, rdb, keys, roles)
	if lacks != "" {
		f.wrong("%s", lacks)
	}
	return err
}

// lack returns what the user may not call or use, and the rule that allows it. It returns "" if nothing is lacking, or if the server
// can't report it.
func lack(ctx context.Context, rdb redis.UniversalClient, keys []string, roles []Role) (string, error) {
	args := scripts.Permits.Args(len(keys), scripts.Arg("keys_asked", len(keys)))
	for _, name := range append(slices.Clone(keys), Commands(roles...)...) {
		args = append(args, name)
	}
	r, err := scripts.Permits.Run(ctx, rdb, nil, args)
	if redis.HasErrorPrefix(err, "NOPERM") {
		who := user(ctx, rdb)
		return fmt.Sprintf("user %s may not run scripts (%v); allow that with: ACL SETUSER %s +evalsha +eval", who, err, who), nil
	}
	var answer redis.Error
	if errors.As(err, &answer) && !isPassing(err) {
		return "", nil // this server can't report it: calls that are denied will show it
	}
	if err != nil {
		return "", err
	}
	if r.Status("ok") != nil {
		return "", nil
	}
	denied, foreign := r.Strs(1), r.Strs(2)
	if r.Err != nil {
		return "", r.Err
	}
	if len(denied)+len(foreign) == 0 {
		return "", nil
	}
	var lacks []string
	who := user(ctx, rdb)
	others := func(c string) bool { return slices.Contains(toChannels, c) }
	if channeled := slices.DeleteFunc(Commands(roles...), func(c string) bool { return !others(c) }); len(channeled) > 0 &&
		!slices.ContainsFunc(channeled, func(c string) bool { return !slices.Contains(denied, c) }) {
		lacks = append(lacks, fmt.Sprintf("user %s may not use the channels signalbox:*, over which workers are woken; allow it with: ACL SETUSER %s &signalbox:* %s",
			who, who, rule(channeled)))
		denied = slices.DeleteFunc(denied, others)
	}
	keyed := slices.DeleteFunc(Commands(roles...), func(c string) bool { return slices.Contains(keyless, c) || slices.Contains(denied, c) })
	switch {
	case len(denied) > 0 && len(keyed) > 0:
		lacks = append(lacks, fmt.Sprintf("user %s may not call %s, which a %s calls; allow it with: ACL SETUSER %s %s",
			who, strings.Join(denied, ", "), names(roles), who, rule(denied)))
	case len(foreign) > 0: // and the user may not call any command that has a key
		lacks = append(lacks, fmt.Sprintf("user %s may not use the key %s; allow it with: ACL SETUSER %s ~signalbox:*, or a pattern for each queue", who, foreign[0], who))
	}
	return strings.Join(lacks, "; "), nil
}

// rule returns the part of an ACL rule that allows commands.
func rule(commands []string) string { return "+" + strings.ToLower(strings.Join(commands, " +")) }

// toChannels are the commands that an ACL allows only for some channels. If a user may call none of them, it lacks the channels or the
// commands: the server doesn't say which.
var toChannels = []string{"PUBLISH", "SPUBLISH", "SSUBSCRIBE", "SUBSCRIBE"}

// IsDenied reports whether Redis says that its user lacks a command or a key. If a script calls the command, later versions of Redis
// reply with the code NOPERM. Redis 7.0 and Valkey reply without a code.
func IsDenied(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "NOPERM") || strings.Contains(text, "-NOPERM ") || strings.Contains(text, ": NOPERM ") ||
		strings.Contains(text, "The user executing the script can't") || strings.Contains(text, "ACL failure in script")
}

// Denied adds an explanation to err, the error of a call that Redis denied on a key. It names what the user lacks in this role, and
// the rule that allows it. It returns other errors unchanged.
func Denied(ctx context.Context, rdb redis.UniversalClient, key string, err error, role Role) error {
	var answer redis.Error
	if !errors.As(err, &answer) || !IsDenied(answer) {
		return err
	}
	if lacks, _ := lack(ctx, rdb, []string{key}, []Role{role}); lacks != "" {
		return fmt.Errorf("%s: %w", lacks, err)
	}
	return err
}

// keyless are the commands that have no key of a queue, and those that a script can't ask about.
var keyless = []string{"MEMORY|USAGE", "TIME", "EVAL", "EVALSHA", "PUBLISH", "SPUBLISH", "SSUBSCRIBE", "SUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE"}

// user returns the name of the client's user. It asks the server only if the client doesn't know the name: a user with the rights of the docs may not ask, and Redis notes that it did
// in its ACL LOG.
func user(ctx context.Context, rdb redis.UniversalClient) string {
	var name string
	switch c := rdb.(type) {
	case *redis.Client:
		o := c.Options()
		if name = o.Username; name == "" && o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil {
			name = "default"
		}
	case *redis.ClusterClient:
		o := c.Options()
		if name = o.Username; name == "" && o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil {
			name = "default"
		}
	}
	if name == "" {
		name = rdb.ACLWhoAmI(ctx).Val()
	}
	return cmp.Or(name, "default")
}

// names returns the names of roles.
func names(roles []Role) string {
	var all []string
	for _, r := range roles {
		all = append(all, r.String())
	}
	return strings.Join(all, " and ")
}
