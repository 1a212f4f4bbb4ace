package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/signalbox-go/signalbox/inspect"
)

// editPayload returns a job's arguments as somebody has changed them in an editor.
func (a *app) editPayload(ctx context.Context, ins *inspect.Inspector, queue, id string) (json.RawMessage, error) {
	j, err := ins.Job(ctx, queue, id)
	if err != nil {
		return nil, err
	}
	if j.Encoding != "" {
		return nil, usage("the arguments of job %s have the encoding %s, and only a program with its codec can make others: enqueue the job anew", id, j.Encoding)
	}
	var text bytes.Buffer
	if err := json.Indent(&text, j.Payload, "", "  "); err != nil {
		return nil, usage("the arguments of job %s are no JSON, and can't be changed in an editor: want --args", id)
	}
	text.WriteByte('\n')
	dir, err := os.MkdirTemp("", "signalbox")
	if err != nil {
		return nil, err
	}
	kept := false
	defer func() {
		if !kept {
			os.RemoveAll(dir)
		}
	}()
	file := filepath.Join(dir, "arguments.json") // for the editor's eyes; readable by its user only
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		return nil, err
	}
	editor := strings.Fields(cmp.Or(a.env("VISUAL"), a.env("EDITOR"), "vi"))
	cmd := exec.CommandContext(ctx, editor[0], append(editor[1:], file)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, os.Stderr, os.Stderr
	a.editing.Store(true)
	err = cmd.Run()
	a.editing.Store(false)
	if err != nil {
		return nil, fmt.Errorf("nothing was changed: the editor %s: %w", editor[0], err)
	}
	changed, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(changed, text.Bytes()) {
		return nil, &unchangedError{queue, id}
	}
	if err := validJSON(changed); err != nil {
		kept = true
		return nil, usage("%v; what you wrote is kept in %s: mend it, and pass --args @%s", err, file, file)
	}
	now, err := ins.Job(ctx, queue, id)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(now.Payload, j.Payload) {
		kept = true
		return nil, fmt.Errorf("nothing was changed: somebody else has changed the arguments of job %s meanwhile; what you wrote is kept in %s", id, file)
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, changed)
	return compact.Bytes(), err
}

// An unchangedError says that somebody left an editor without a change.
type unchangedError struct{ queue, id string }

func (e *unchangedError) Error() string {
	return "nothing was changed; to run the job as it is: signalbox job retry " + e.queue + " " + e.id
}

func (a *app) printEdited(queue, id, was string, ran bool) error {
	if a.json() {
		return a.document(struct {
			Queue string `json:"queue"`
			ID    string `json:"id"`
			Was   string `json:"was"`
			Run   bool   `json:"run"`
		}{queue, id, was, ran})
	}
	if ran {
		fmt.Fprintf(a.out, "job %s was %s: changed, and ready to run\n", id, was)
	} else {
		fmt.Fprintf(a.out, "job %s, which is %s, was changed\n", id, was)
	}
	return nil
}
