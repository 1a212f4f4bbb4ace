package inspect

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// Importing says how [Inspector.Import] goes about it. The zero value puts the jobs in, and leaves the queue's settings as they are.
type Importing struct {
	// DryRun checks all lines and counts the jobs, and changes nothing.
	DryRun bool
	// Settings sets the queue's settings to those of the file: slots, what is kept, and where dead jobs are copied to, before any job is put in, and the
	// pause, too, if the file's queue was paused. If it was not, the queue is resumed when all jobs are in. After an error a paused queue stays paused.
	Settings bool
	// Progress is called from time to time, and at the end. It may be nil.
	Progress func(Imported)
}

// Imported counts the jobs of a file.
type Imported struct {
	Jobs  int64 // lines with a job that could be read
	Done  int64 // were put in; with DryRun, would be
	There int64 // were left out: the queue has a job of this ID, in any state, or another job that has the unique key until its end
	Bad   int64 // lines that are no job. They were left out
	// Past is how many lines with what the file's queue knew of the past were taken over, such as the last batch of an outbox or the last tick of a cron entry.
	// With DryRun it is how many would be. A window of a unique key, or a hold, that has ended meanwhile counts as taken over, and so does
	// the key of a throttled job that ended while the file was written.
	Past int64
	// PastThere is how many such lines were left out because the queue knows the same, or something later.
	PastThere int64
	// PastOther is how many such lines were left out because the file's queue has another name or namespace: outboxes, cron entries and copies of dead
	// jobs go by these.
	PastOther int64
}

// ErrFile is wrapped by the error of an Import whose file has lines that are no jobs, or was cut off.
var ErrFile = errors.New("inspect: the file is not in order")

const (
	maxLine = 12 << 20 // bytes of a line
	// maxImport is the most jobs, and maxImportBytes about the most bytes, that are put in at a time.
	maxImport, maxImportBytes = 200, 1 << 20
)

// Import puts the jobs of a file of [Inspector.Export] into a queue, which may have another name, another namespace, or another Redis. It may have jobs: one
// whose ID the queue has already, in any state, is left out and counted. So Import may be called again, with the same file, after any error. A job that has
// completed meanwhile has left no trace, unless the queue keeps completed jobs: it is put in again. So import a file to its end before the queue is worked: pause it first.
//
// Jobs keep what they have in the file: the ID, the state, the effect key, all times and errors. Ready jobs come in as due at the time when they
// were due: so workers get them in that order, and those of one time in the order of their IDs. They count as scheduled until a worker looks. Dead and
// cancelled jobs that are older than the queue keeps, or too many, are dropped as usual.
//
// Jobs of groups come into their lines at the places of these times, also those that waited for a retry: the next one of a serial group doesn't wait for them.
//
// What the file's queue knew of the past comes in as well: see [Inspector.Export]. What this queue knows that is later stays. So relays of an outbox that
// go on here send nothing again that is in the file or had completed, if they stood still from before the export to the end of the import.
//
// It needs little memory for any number of jobs. A line that is no job is left out, and counted. After such lines, and if the last line is missing, the
// error at the end wraps [ErrFile] and has the numbers of the first few lines, but nothing of their contents. A first line that isn't one of a file ends the
// import at once: then nothing was done.
func (i *Inspector) Import(ctx context.Context, queue string, r io.Reader, o Importing) (done Imported, err error) {
	if err := layout.ValidateQueue(queue); err != nil {
		return done, fmt.Errorf("inspect: %w", err)
	}
	im := &importer{q: i.store(queue), namespace: i.cfg.Namespace, o: o, lines: lines{r: bufio.NewReaderSize(r, 64<<10)}}
	if o.Progress != nil {
		defer func() { o.Progress(im.done) }()
	}
	if err := im.run(ctx); err != nil {
		return im.done, fmt.Errorf("inspect: import into queue %s: %w", queue, err)
	}
	return im.done, nil
}

// An importer reads a file.
type importer struct {
	q         *store.Queue
	namespace string
	o         Importing
	lines     lines
	done      Imported
	jobs      []store.Stored // that are still to be put in
	bytes     int
	pasts     []store.Past // the same, all of one kind. If there are any, there are no jobs
	// own reports whether the file is of a queue of this name, and of this namespace.
	own   bool
	ended bool
	// resume is whether the queue is resumed at the end.
	resume bool
	wrong  failures
}

func (im *importer) run(ctx context.Context) error {
	if err := im.head(ctx); err != nil {
		return err
	}
	for {
		line, err := im.lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, errLong) {
			return errors.Join(err, im.flush(ctx))
		}
		if err == nil {
			err = im.line(ctx, line)
		}
		if failure := (*failedError)(nil); errors.As(err, &failure) {
			return failure.err
		}
		if err != nil {
			im.done.Bad++
			im.wrong.add(fmt.Errorf("line %d: %w", im.lines.n, err))
		}
		if len(im.jobs) >= maxImport || len(im.pasts) >= maxImport || im.bytes >= maxImportBytes {
			if err := im.flush(ctx); err != nil {
				return err
			}
		}
	}
	if err := im.flush(ctx); err != nil {
		return err
	}
	if !im.o.DryRun {
		if err := im.q.Presence().Register(ctx); err != nil { // it may have been removed since head did so
			return err
		}
	}
	switch {
	case im.done.Bad > 0:
		return fmt.Errorf("%w: %d of its lines are no jobs: %w", ErrFile, im.done.Bad, im.wrong)
	case !im.ended:
		return fmt.Errorf("%w: its last line is missing: it was cut off behind line %d", ErrFile, im.lines.n)
	}
	if im.resume {
		_, err := im.q.Settings().Resume(ctx)
		return err
	}
	return nil
}

// head reads the first line, and sets the settings.
func (im *importer) head(ctx context.Context) error {
	line, err := im.lines.next()
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errLong) {
		return err
	}
	var head fileHead
	if err != nil || decodeLine(line, &head) != nil || head.Signalbox != "export" {
		return fmt.Errorf("%w file: its first line is not that of an export", signalbox.ErrInvalid)
	}
	if head.Format != fileFormat {
		return fmt.Errorf("%w file: it has format %d, and this release reads format %d", signalbox.ErrInvalid, head.Format, fileFormat)
	}
	im.own = head.Queue == im.q.Name() && cmp.Or(head.Namespace, layout.DefaultNamespace) == cmp.Or(im.namespace, layout.DefaultNamespace)
	if im.o.Settings {
		if err := errors.Join(settings.ValidateSlots(head.Settings.Slots), settings.ValidateRetention(head.Settings.retention()), settings.ValidateRetention(head.Settings.completed()),
			settings.ValidateCopies(im.q.Name(), head.Settings.CopyDead), head.Settings.checkLimits(), head.Settings.applied().Validate()); err != nil {
			return err
		}
	}
	if err := im.q.Site().CheckLayout(ctx); err != nil {
		return err
	}
	if im.o.DryRun {
		return nil
	}
	if err := im.q.Presence().Register(ctx); err != nil {
		return err
	}
	if !im.o.Settings {
		return nil
	}
	if im.resume = !head.Settings.Paused; !im.resume {
		if _, err := im.q.Settings().Pause(ctx); err != nil {
			return err
		}
	}
	// First, so that what follows isn't replaced by a worker that starts meanwhile.
	if err := im.q.Settings().Carry(ctx, head.Settings.applied()); err != nil {
		return err
	}
	if _, err := im.q.Settings().SetSlots(ctx, head.Settings.Slots); err != nil {
		return err
	}
	if err := im.q.Settings().SetRetention(ctx, head.Settings.retention()); err != nil {
		return err
	}
	if err := im.q.Settings().SetCompleted(ctx, head.Settings.completed()); err != nil {
		return err
	}
	if err := head.Settings.setLimits(ctx, im.q); err != nil {
		return err
	}
	return im.q.Settings().SetCopies(ctx, head.Settings.CopyDead)
}

// A failedError is the error of a call of Redis, not of a line.
type failedError struct{ err error }

func (e *failedError) Error() string { return e.err.Error() }
func (e *failedError) Unwrap() error { return e.err }

// line reads one line of the others. The error is a *failedError if Redis is the cause.
func (im *importer) line(ctx context.Context, line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	if im.ended {
		return fmt.Errorf("%w line: it stands behind the last one", signalbox.ErrInvalid)
	}
	var end fileEnd
	if bytes.HasPrefix(line, []byte(`{"end"`)) && decodeLine(line, &end) == nil && end.End {
		im.ended = true
		return nil
	}
	if bytes.HasPrefix(line, []byte(`{"past"`)) {
		return im.past(ctx, line)
	}
	var job fileJob
	if err := decodeLine(line, &job); err != nil {
		return err
	}
	s, err := job.stored()
	if err == nil {
		err = im.q.Transfer().Prepare(&s)
	}
	if err != nil {
		return err
	}
	if len(im.pasts) > 0 {
		if err := im.flush(ctx); err != nil {
			return &failedError{err}
		}
	}
	im.done.Jobs++
	im.jobs = append(im.jobs, s)
	im.bytes += len(s.Record)
	return nil
}

// past reads a line with something that the file's queue knew of the past. The jobs in front of it are put in before it.
func (im *importer) past(ctx context.Context, line []byte) error {
	var read filePast
	if err := decodeLine(line, &read); err != nil {
		return err
	}
	if read.Past == pastHold {
		hold, err := read.hold()
		if err != nil {
			return err
		}
		im.done.Past++
		if im.o.DryRun {
			return nil
		}
		if err := im.q.Settings().HoldUntil(ctx, hold); err != nil {
			return &failedError{err}
		}
		return nil
	}
	p, err := read.past()
	if err != nil {
		return err
	}
	if p.Kind != store.PastUnique && !im.own {
		im.done.PastOther++
		return nil
	}
	if len(im.jobs) > 0 || len(im.pasts) > 0 && im.pasts[0].Kind != p.Kind {
		if err := im.flush(ctx); err != nil {
			return &failedError{err}
		}
	}
	im.pasts = append(im.pasts, p)
	im.bytes += len(p.Value) + len(p.Entry.Job)
	return nil
}

// flush puts in the jobs that were read, or what is known of the past.
func (im *importer) flush(ctx context.Context) error {
	if len(im.pasts) > 0 {
		done, err := im.q.Transfer().PutPasts(ctx, im.pasts, im.o.DryRun)
		for _, taken := range done {
			if taken {
				im.done.Past++
			} else {
				im.done.PastThere++
			}
		}
		im.pasts, im.bytes = im.pasts[:0], 0
		if err != nil {
			return err
		}
	}
	if len(im.jobs) == 0 {
		return nil
	}
	answers, err := im.q.Transfer().Put(ctx, im.jobs, im.o.DryRun)
	for _, answer := range answers {
		if answer.Acted == store.Done {
			im.done.Done++
		} else {
			im.done.There++
		}
	}
	im.jobs, im.bytes = im.jobs[:0], 0
	if im.o.Progress != nil {
		im.o.Progress(im.done)
	}
	return err
}

// lines reads a file line by line.
type lines struct {
	r   *bufio.Reader
	n   int // the number of the last line
	buf []byte
}

// errLong is the error of a line that is too long.
var errLong = fmt.Errorf("%w line: it is longer than %d MiB", signalbox.ErrInvalid, maxLine>>20)

// next returns the next line, which is valid until the next call. After errLong it goes on behind that line.
func (l *lines) next() ([]byte, error) {
	l.buf = l.buf[:0]
	long := false
	for {
		part, err := l.r.ReadSlice('\n')
		if len(l.buf)+len(part) > maxLine {
			long, l.buf = true, l.buf[:0]
		}
		if !long {
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(l.buf) == 0 && !long:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		}
		l.n++
		if long {
			return nil, errLong
		}
		return l.buf, nil
	}
}
