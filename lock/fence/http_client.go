package fence

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
)

// The headers of a request under a lease.
const (
	headerToken    = "Fencing-Token"    // decimal
	headerResource = "Fencing-Resource" // the lease's key, escaped as a path segment of a URL
	headerIssuer   = "Fencing-Issuer"
	headerHolder   = "Fencing-Holder" // a hash
)

// A Transport sends the fencing token of the request's context with each request, for a server that checks it, such as one with a [Gate].
//
//	Fencing-Token: 1750000000123456
//	Fencing-Resource: account:7
//	Fencing-Issuer: redis
//	Fencing-Holder: jDa8lbxqGgHTXmSfMqbBWQ
//
// A request without a lease in its context is an error. The headers go to every host that the client calls. Use a client of its own for servers
// that check tokens.
type Transport struct {
	// Base makes the requests. The default is [http.DefaultTransport].
	Base http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	g, err := oneGrant(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(headerToken, strconv.FormatInt(g.token, 10))
	r.Header.Set(headerResource, url.PathEscape(g.resource))
	r.Header.Set(headerIssuer, g.issuer)
	r.Header.Set(headerHolder, g.holder)
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(r)
}

// CheckResponse returns the error that a [Gate] or [Problem] has answered with: a [StaleError] or an [ErrForeign]. It returns nil for all other
// responses, and leaves their bodies unread. After an error the body is closed.
func CheckResponse(r *http.Response) error {
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); r.StatusCode != http.StatusConflict || err != nil || mediaType != problemType {
		return nil
	}
	defer r.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("fence: read a problem document: %w", err)
	}
	var p problem
	if err := json.Unmarshal(body, &p); err != nil {
		return fmt.Errorf("fence: decode a problem document: %w", err)
	}
	switch p.Type {
	case problemStale:
		return &StaleError{Resource: p.Resource, Token: p.Token, Highest: p.Highest}
	case problemForeign:
		return fmt.Errorf("%w: %s", ErrForeign, p.Detail)
	}
	return fmt.Errorf("fence: the server refused with status %d: %s", r.StatusCode, p.Title)
}
