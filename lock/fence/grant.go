package fence

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/signalbox-go/signalbox/lock"
)

// Bounds of what a guard keeps, in bytes.
const (
	maxResource = 1024
	maxIssuer   = 64
)

// A Grant is a lease that somebody else holds, as a guard needs it: one that came with an HTTP request. It is a
// [lock.Lease] and a [lock.Origin], so a context can carry it: see [lock.NewContext].
type Grant struct {
	resource, issuer, holder string
	token                    int64
}

// Key returns the resource.
func (g Grant) Key() string { return g.resource }

// Token returns the fencing token.
func (g Grant) Token() int64 { return g.token }

// Until returns the zero time: only the holder knows when the lease ends.
func (g Grant) Until() time.Time { return time.Time{} }

// Issuer names the counter that the token comes from.
func (g Grant) Issuer() string { return g.issuer }

// Holder returns a hash of the holder's own value: 22 characters.
func (g Grant) Holder() string { return g.holder }

// check returns what is wrong with the grant.
func (g Grant) check() error {
	switch {
	case g.resource == "" || len(g.resource) > maxResource:
		return invalid("the lease's key has %d bytes; a guard takes 1 to %d", len(g.resource), maxResource)
	case !utf8.ValidString(g.resource) || strings.Contains(g.resource, "\x00"):
		return invalid("the lease's key %.200q is no UTF-8 text, or has a NUL; databases can't keep it", g.resource)
	case !printable(g.issuer) || len(g.issuer) > maxIssuer:
		return invalid("the issuer %.200q of the lease on %.200q; want 1 to %d bytes of printable ASCII without spaces", g.issuer, g.resource, maxIssuer)
	case g.token <= 0:
		return invalid("the token %d of the lease on %.200q; want a positive one", g.token, g.resource)
	case !printable(g.holder):
		return invalid("the holder of the lease on %.200q is empty, or no printable ASCII without spaces", g.resource)
	}
	return nil
}

// printable reports whether s has only printable ASCII without spaces, and at least one byte.
func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// hashHolder returns what is kept of a holder's own value. Guards only ask whether two are equal. The value itself may
// be a secret: who has it could release the lock.
func hashHolder(holder string) string {
	sum := sha256.Sum256([]byte(holder))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// grantsOf returns what leases grant, sorted by resource. Without leases it takes that of the context. A lock of several
// keys has a grant for each of them.
func grantsOf(ctx context.Context, leases []lock.Lease) ([]Grant, error) {
	if len(leases) == 0 {
		l, ok := lock.FromContext(ctx)
		if !ok {
			return nil, invalid("the context carries no lease; call it in a handler, under lock.Do or lock.NewContext, or pass the lease")
		}
		leases = []lock.Lease{l}
	}
	grants := make([]Grant, 0, len(leases))
	for _, l := range leases {
		if l == nil {
			return nil, invalid("a lease is nil")
		}
		g, ok := l.(Grant)
		if !ok {
			o, ok := l.(lock.Origin)
			if !ok {
				return nil, invalid("the lease on %.200q, of type %T, doesn't say who issued its token: it is no lock.Origin", l.Key(), l)
			}
			g = Grant{issuer: o.Issuer(), token: l.Token(), resource: l.Key()}
			if holder := o.Holder(); holder != "" {
				g.holder = hashHolder(holder)
			}
		}
		if several, ok := l.(interface{ Keys() []string }); ok {
			for _, key := range several.Keys() {
				g.resource = key
				grants = append(grants, g)
			}
			continue
		}
		grants = append(grants, g)
	}
	slices.SortFunc(grants, func(a, b Grant) int { return cmp.Compare(a.resource, b.resource) })
	for i, g := range grants {
		if err := g.check(); err != nil {
			return nil, err
		}
		if i > 0 && grants[i-1].resource == g.resource {
			return nil, invalid("two leases on %.200q", g.resource)
		}
	}
	return grants, nil
}

// judge compares a grant with the mark that another, or itself, has left.
func (g Grant) judge(issuer, holder string, token int64) error {
	switch {
	case issuer != g.issuer:
		return foreign(g.resource, g.issuer, issuer)
	case token > g.token || token == g.token && holder != g.holder:
		return &StaleError{Resource: g.resource, Token: g.token, Highest: token}
	}
	return nil
}

// oneGrant returns the grant of the context's lease, which must be on one resource.
func oneGrant(ctx context.Context) (Grant, error) {
	grants, err := grantsOf(ctx, nil)
	if err != nil {
		return Grant{}, err
	}
	if len(grants) != 1 {
		return Grant{}, invalid("the context's lease is on %d keys; this guard takes a lease on one", len(grants))
	}
	return grants[0], nil
}
