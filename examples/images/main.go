// Command images makes thumbnails by a job that takes long: it says how far it is, goes on after a restart of its worker, and has a result.
//
//	go run ./examples/images
//
// images.go is the application, and api.go its service for browsers. This file is the story: a client that uploads an image, and a deploy in the middle.
// README.md leads through it. With REDIS_URL it uses a real Redis, with a namespace of its own, which it deletes at the end. The flag -v shows the logs of
// the workers.
//
// The exit status is 0 only if each thumbnail was made once, though the worker was restarted, and the client got all of them.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/examples/internal/stage"
	"github.com/signalbox-go/signalbox/scheduler"
)

var widths = []int{320, 240, 200, 160, 120, 80, 64, 48, 32, 16}

// A result says what became of the thumbnails.
type result struct {
	made, twice, before, shown, files int
}

func (r result) String() string {
	return fmt.Sprintf("images: made=%d twice=%d before_restart=%d progress=%d files=%d", r.made, r.twice, r.before, r.shown, r.files)
}

func (r result) Problem() error {
	if r.made != len(widths) || r.twice > 0 || r.before != restartAfter || r.shown == 0 || r.files != len(widths) {
		return errors.New("want each thumbnail made once, some before the restart and some after it, progress shown, and each file in the result")
	}
	return nil
}

// restartAfter is how many thumbnails the first worker makes.
const restartAfter = 4

// A counter counts what was made.
type counter struct {
	mu    sync.Mutex
	times map[int]int // by width
}

// made counts a thumbnail. The handler waits in the last one of the first worker until that shuts down.
func (c *counter) made(ctx context.Context, width int) {
	c.mu.Lock()
	c.times[width]++
	last := len(c.times) == restartAfter
	c.mu.Unlock()
	if last {
		select {
		case <-signalbox.Draining(ctx):
		case <-ctx.Done():
		}
	}
}

// counts returns how many thumbnails were made, and how many of them more than once.
func (c *counter) counts() (made, twice int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.times {
		if n > 1 {
			twice++
		}
	}
	return len(c.times), twice
}

// run uploads an image, restarts the worker in the middle, and waits for the result as a browser would.
func run(ctx context.Context, out io.Writer, db *stage.Redis) (r result, err error) {
	folder, err := os.MkdirTemp("", "images-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	s, err := scheduler.New(db.Client, scheduler.Config{Namespace: db.Namespace})
	if err != nil {
		return r, err
	}
	service := httptest.NewServer(api(s, folder, widths))
	defer service.Close()
	c := &counter{times: map[int]int{}}
	start := func() (end func() error) {
		return stage.Beside(ctx, func(ctx context.Context) error {
			return work(ctx, db.Client, db.Namespace, &studio{folder: folder, made: c.made})
		})
	}

	var photo bytes.Buffer
	if err := png.Encode(&photo, picture()); err != nil {
		return r, err
	}
	resp, err := service.Client().Post(service.URL+"/images", "image/png", &photo)
	if err != nil {
		return r, err
	}
	_ = resp.Body.Close()
	job := service.URL + resp.Header.Get("Location")
	fmt.Fprintf(out, "POST /images: %s\n", resp.Status)

	// The browser asks until it sees how far the job is.
	end := start()
	err = stage.Until(ctx, func() (bool, error) {
		got, err := ask(ctx, service.Client(), job)
		r.shown = int(got.Done)
		return got.Done == restartAfter-1, err
	})
	// A deploy: the worker shuts down, and another one starts.
	if err := errors.Join(err, end()); err != nil {
		return r, err
	}
	r.before, _ = c.counts()
	fmt.Fprintf(out, "GET /jobs/...: %d of %d\n", r.shown, len(widths))
	fmt.Fprintf(out, "the worker is restarted after %d\n", r.before)
	end = start()
	defer func() { err = errors.Join(err, end()) }()
	var got reply
	err = stage.Until(ctx, func() (over bool, err error) {
		got, err = ask(ctx, service.Client(), job)
		return got.State == signalbox.StateCompleted || got.State == signalbox.StateDead, err
	})
	if err != nil {
		return r, err
	}
	fmt.Fprintf(out, "GET /jobs/...: %s, %d files\n", got.State, len(got.Files))
	for _, file := range got.Files {
		resp, err := service.Client().Get(service.URL + "/files/" + file)
		if err != nil {
			return r, err
		}
		img, err := png.DecodeConfig(resp.Body)
		_ = resp.Body.Close()
		if err == nil && img.Width == widths[r.files] {
			r.files++
		}
	}
	r.made, r.twice = c.counts()
	return r, nil
}

// ask asks the service how far the job is.
func ask(ctx context.Context, client *http.Client, job string) (got reply, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, job, nil)
	if err != nil {
		return got, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return got, fmt.Errorf("GET %s: %s: %s", job, resp.Status, strings.TrimSpace(string(text)))
	}
	return got, json.NewDecoder(resp.Body).Decode(&got)
}

// picture returns a colourful image.
func picture() image.Image {
	img := image.NewRGBA(image.Rect(0, 0, 640, 480))
	for y := range 480 {
		for x := range 640 {
			img.Set(x, y, color.RGBA{uint8(x), uint8(y), uint8(x + y), 255})
		}
	}
	return img
}

func main() { stage.Main("images", run) }
