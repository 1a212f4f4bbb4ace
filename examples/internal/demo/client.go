package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A reply is the reply of one server to one request.
type reply struct {
	server int // from 1
	status int
	body   string
	err    error
}

// post makes one request to each server, all at the same time. The replies come as soon as they
// arrive.
func post(ctx context.Context, urls []string) <-chan reply {
	replies := make(chan reply, len(urls))
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience + 5*time.Second}
	start := make(chan struct{})
	var all sync.WaitGroup
	for i, url := range urls {
		all.Go(func() {
			<-start
			r := postOne(ctx, client, url+"/items", fmt.Sprintf(`{"name":"%d"}`, i))
			r.server = i + 1
			replies <- r
		})
	}
	close(start)
	go func() {
		all.Wait()
		client.CloseIdleConnections()
		close(replies)
	}()
	return replies
}

func postOne(ctx context.Context, client *http.Client, url, body string) reply {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return reply{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return reply{status: resp.StatusCode, body: strings.TrimSpace(string(b)), err: err}
}
