package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg" // so that JPEG files can be read
	"image/png"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// Thumbnails is the job that makes small copies of an image. Jobs have the names of large data, not the data.
type Thumbnails struct {
	File   string `json:"file"`   // in the folder of the service
	Widths []int  `json:"widths"` // in pixels
}

// Kind names the job.
func (Thumbnails) Kind() string { return "image.thumbnails" }

// Made is the result of the job: the files, in the order of the widths.
type Made struct {
	Files []string `json:"files"` // in the folder of the service
}

// enqueue has thumbnails made of a file. The job is kept for an hour after its end, with its result. The reference names it, for those who ask for that.
func enqueue(ctx context.Context, s *scheduler.Scheduler, file string, widths []int) (scheduler.Ref, error) {
	r, err := s.Enqueue(ctx, Thumbnails{File: file, Widths: widths}, scheduler.Retain(time.Hour))
	return r.Ref(), err
}

// A studio makes thumbnails.
type studio struct {
	folder string                               // has the images
	made   func(ctx context.Context, width int) // is called with each one
}

// thumbnails is the handler. After each thumbnail it saves which ones it has made. When its worker shuts down, it ends after the one that it is making. The
// next delivery goes on from there, in this process or in another one.
func (s *studio) thumbnails(ctx context.Context, _ *signalbox.Job, in Thumbnails) error {
	text, err := os.ReadFile(filepath.Join(s.folder, in.File))
	if err != nil {
		return err
	}
	original, _, err := image.Decode(bytes.NewReader(text))
	if err != nil {
		return signalbox.Dead(err) // no other attempt would read it
	}
	var made Made
	if _, err := signalbox.Resume(ctx, &made); err != nil {
		return err
	}
	for n, width := range in.Widths {
		if n < len(made.Files) {
			continue // an earlier delivery has made this one
		}
		file := fmt.Sprintf("%s.%d.png", in.File, width)
		if err := write(filepath.Join(s.folder, file), shrink(original, width)); err != nil {
			return err
		}
		s.made(ctx, width)
		made.Files = append(made.Files, file)
		if err := signalbox.Checkpoint(ctx, made); err != nil {
			return err
		}
		signalbox.Progress(ctx, len(made.Files), len(in.Widths), "thumbnails")
		select {
		case <-signalbox.Draining(ctx):
			return signalbox.Snooze(0) // another worker may go on at once
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
	}
	return signalbox.SetResult(ctx, made)
}

// shrink returns an image of a width, with the same proportions.
func shrink(from image.Image, width int) image.Image {
	b := from.Bounds()
	height := max(1, b.Dy()*width/b.Dx())
	to := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			to.Set(x, y, color.RGBAModel.Convert(from.At(b.Min.X+x*b.Dx()/width, b.Min.Y+y*b.Dy()/height)))
		}
	}
	return to
}

// write puts an image into a file. A crash leaves no half of it: the file gets its name when it is whole.
func write(name string, img image.Image) error {
	f, err := os.CreateTemp(filepath.Dir(name), "thumbnail-")
	if err != nil {
		return err
	}
	if err := errors.Join(png.Encode(f, img), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), name)
}

// work makes thumbnails until ctx ends.
func work(ctx context.Context, rdb redis.UniversalClient, namespace string, s *studio) error {
	w, err := worker.New(rdb, worker.Config{Namespace: namespace})
	if err != nil {
		return err
	}
	worker.Handle(w, s.thumbnails)
	return w.Run(ctx)
}
