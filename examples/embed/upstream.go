package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
)

// upstream is the client of the other system, which has the sales and sends the notices.
type upstream struct {
	base string
	http *http.Client
}

func newUpstream(base string) *upstream {
	// The timeout is for one request. The job's own timeout is longer, and ends the request's context too.
	return &upstream{base, &http.Client{Timeout: 30 * time.Second, Transport: otelhttp.NewTransport(http.DefaultTransport)}}
}

// maxRows bounds the sales of a day, in bytes.
const maxRows = 1 << 20

// sales returns the sales of an account on a day, as rows of CSV.
func (u *upstream) sales(ctx context.Context, account, day string) ([]byte, error) {
	return u.do(ctx, http.MethodGet, "/sales/"+url.PathEscape(account)+"/"+day, "")
}

// notify says that a report is done. Two calls with the same key are one notice.
func (u *upstream) notify(ctx context.Context, key, report string) error {
	_, err := u.do(ctx, http.MethodPost, "/notices/"+url.PathEscape(report), key)
	return err
}

func (u *upstream) do(ctx context.Context, method, path, key string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := u.http.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, which may have a password: a job's error is logged and kept
		}
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRows+1))
	switch {
	case resp.StatusCode >= 300:
		return nil, &statusError{resp.StatusCode, resp.Header.Get("Retry-After")}
	case err == nil && len(body) > maxRows:
		return nil, fmt.Errorf("more than %d bytes", maxRows)
	}
	return body, err
}

// A statusError is an answer other than success. It doesn't have the answer's text, which may have secrets in it.
type statusError struct {
	status int
	after  string
}

func (e *statusError) Error() string { return "the other system says " + strconv.Itoa(e.status) }

// ErrorType names the error in traces and metrics.
func (e *statusError) ErrorType() string { return strconv.Itoa(e.status) }

// RetryAfter is asked by the worker: when the other system has said when it can be asked again, the next attempt begins then.
func (e *statusError) RetryAfter() time.Duration {
	seconds, err := strconv.Atoi(e.after)
	if err != nil {
		return 0 // the policy of the kind decides
	}
	return time.Duration(seconds) * time.Second
}

// isFinal reports whether another attempt would have the same answer: the request is wrong, and not the moment.
func isFinal(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	if !ok || e.status >= 500 {
		return false
	}
	return e.status != http.StatusTooManyRequests && e.status != http.StatusRequestTimeout
}
