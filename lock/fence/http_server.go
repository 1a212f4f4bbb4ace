package fence

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// A Gate checks the fencing tokens of requests that a [Transport] has sent. Its methods wrap a handler:
//
//   - [Gate.Require] is for a handler that guards its own transaction. It checks that there is a token, and puts it into the context. The
//     handler calls [Guard.Enter] and answers an error with [Problem].
//   - [Gate.OneProcess] compares tokens in memory, for a server that is a single process.
//
// Set the fields before the first request.
type Gate struct {
	// Authorize decides whether the sender of a request may use this resource. It must authenticate the sender: whoever may send any token can
	// lock all others out. Its error is answered with status 403, and its text isn't sent. It is required: without it Require and OneProcess panic.
	Authorize func(r *http.Request, g Grant) error
	// MaxResources bounds how many resources OneProcess knows at a time, since it forgets none. More are answered with status 503. The default is 100,000,
	// some 30 MB.
	MaxResources int

	mu    sync.Mutex
	marks map[string]*mark
}

// A mark is what OneProcess knows of a resource.
type mark struct {
	section chan struct{} // has an element while a handler runs; guards the rest
	highest Grant
}

// Require returns a handler that calls next with the request's grant in the context.
//
// Tokens are bounded: larger ones than the time in an hour, in µs since 1970, are refused with status 400. Otherwise one request with the largest
// number would lock all others out for good. That helps where tokens come from a clock. Those of etcd and of jobs are much smaller: there only Authorize helps.
func (gate *Gate) Require(next http.Handler) http.Handler {
	gate.ready()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g, ok := gate.admit(w, r); ok {
			next.ServeHTTP(w, r.WithContext(lock.NewContext(r.Context(), g)))
		}
	})
}

// OneProcess returns a handler that calls next with one request for each resource at a time, and refuses a token that is smaller than the largest it has seen. It
// works only while this process is the only one that serves the resource: the tokens are in its memory, and a restart forgets them. Requests of a
// superseded holder that are already in transit may arrive after a restart. With several processes, or a database, use Require.
func (gate *Gate) OneProcess(next http.Handler) http.Handler {
	gate.ready()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g, ok := gate.admit(w, r)
		if !ok {
			return
		}
		m := gate.markOf(g)
		if m == nil {
			problem{Type: "about:blank", Title: "Too many resources", Status: http.StatusServiceUnavailable}.write(w)
			return
		}
		select {
		case m.section <- struct{}{}:
		case <-r.Context().Done():
			return // the client has left
		}
		defer func() { <-m.section }()
		if m.highest.token != 0 {
			if err := g.judge(m.highest.issuer, m.highest.holder, m.highest.token); err != nil {
				Problem(w, err)
				return
			}
		}
		m.highest = g
		next.ServeHTTP(w, r.WithContext(lock.NewContext(r.Context(), g)))
	})
}

func (gate *Gate) ready() {
	if gate.Authorize == nil {
		panic("fence: Gate.Authorize is nil; it must say who may send tokens")
	}
}

// markOf returns the mark of a resource, or nil if there is room for no more.
func (gate *Gate) markOf(g Grant) *mark {
	most := gate.MaxResources
	if most <= 0 {
		most = 100_000
	}
	gate.mu.Lock()
	defer gate.mu.Unlock()
	m := gate.marks[g.resource]
	if m == nil && len(gate.marks) < most {
		if gate.marks == nil {
			gate.marks = make(map[string]*mark)
		}
		m = &mark{section: make(chan struct{}, 1)}
		gate.marks[g.resource] = m
	}
	return m
}

// admit returns the grant of a request. If the request is refused, it has been answered.
func (gate *Gate) admit(w http.ResponseWriter, r *http.Request) (Grant, bool) {
	g, err := grantOf(r.Header)
	switch {
	case errors.Is(err, errNoToken):
		problem{Type: "about:blank", Title: "A fencing token is required", Status: http.StatusPreconditionRequired, Detail: err.Error()}.write(w)
	case err != nil:
		problem{Type: "about:blank", Title: "Malformed fencing token", Status: http.StatusBadRequest, Detail: err.Error()}.write(w)
	case gate.Authorize(r, g) != nil:
		problem{Type: "about:blank", Title: "The sender may not use this resource", Status: http.StatusForbidden}.write(w)
	default:
		return g, true
	}
	return Grant{}, false
}

var errNoToken = errors.New("the request has no header " + headerToken)

// grantOf reads the headers of a request.
func grantOf(h http.Header) (Grant, error) {
	if h.Get(headerToken) == "" {
		return Grant{}, errNoToken
	}
	for _, name := range []string{headerToken, headerResource, headerIssuer, headerHolder} {
		if len(h.Values(name)) != 1 {
			return Grant{}, invalid("the request has %d headers %s; want one", len(h.Values(name)), name)
		}
	}
	token, err := strconv.ParseInt(h.Get(headerToken), 10, 64)
	if err != nil || strconv.FormatInt(token, 10) != h.Get(headerToken) {
		return Grant{}, invalid("%s is no decimal number", headerToken)
	}
	if latest := time.Now().Add(time.Hour).UnixMicro(); token > latest {
		return Grant{}, invalid("%s is larger than any that is granted: at most %d", headerToken, latest)
	}
	resource, err := url.PathUnescape(h.Get(headerResource))
	if err != nil {
		return Grant{}, invalid("%s is not escaped as a path segment", headerResource)
	}
	g := Grant{resource: resource, issuer: h.Get(headerIssuer), holder: h.Get(headerHolder), token: token}
	if len(g.holder) > 64 {
		return Grant{}, invalid("%s has %d bytes; want at most 64", headerHolder, len(g.holder))
	}
	return g, g.check()
}

// The problem documents, RFC 9457.
const (
	problemType    = "application/problem+json"
	problemStale   = "https://github.com/signalbox-go/signalbox/blob/main/docs/effects.md#stale"
	problemForeign = "https://github.com/signalbox-go/signalbox/blob/main/docs/effects.md#foreign"
)

type problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Resource string `json:"resource,omitempty"`
	Token    int64  `json:"token,omitempty"`
	Highest  int64  `json:"highest,omitempty"`
}

func (p problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // it has only texts and numbers
	}
	w.Header().Set("Content-Type", problemType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// Problem answers a request with the problem document (RFC 9457) of a guard's error: status 409 for [ErrStale] and [ErrForeign], 503 for
// [ErrBlocked]. It reports whether err is one of these, and does nothing otherwise.
func Problem(w http.ResponseWriter, err error) bool {
	var p problem
	stale, isStale := errors.AsType[*StaleError](err)
	switch {
	case isStale:
		p = problem{
			Type: problemStale, Title: "Stale fencing token", Status: http.StatusConflict, Resource: stale.Resource, Token: stale.Token, Highest: stale.Highest,
			Detail: fmt.Sprintf("token %d was superseded: %d has entered", stale.Token, stale.Highest),
		}
	case errors.Is(err, ErrForeign):
		p = problem{Type: problemForeign, Title: "Fencing token of another issuer", Status: http.StatusConflict, Detail: "the resource is guarded by tokens of another issuer"}
	case errors.Is(err, ErrBlocked):
		p = problem{Type: "about:blank", Title: "The resource is busy", Status: http.StatusServiceUnavailable}
	default:
		return false
	}
	p.write(w)
	return true
}
