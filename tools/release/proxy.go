package main

import (
	"archive/zip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// copyTo copies the files of the tree that git knows, or would add, to another folder.
func (t tree) copyTo(ctx context.Context, to string) error {
	names, err := command(ctx, t.root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.Trim(names, "\x00"), "\x00") {
		text, err := os.ReadFile(t.in(name))
		if os.IsNotExist(err) {
			continue // it is removed, and that isn't committed yet
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// publish adds a version of the module in a folder of the tree to a module proxy made of files.
func (t tree) publish(dir, version, proxy string) error {
	f, err := t.mod(dir)
	if err != nil {
		return err
	}
	path := f.Module.Mod.Path
	folder := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := os.ReadFile(t.in(dir + "/go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC()})
	if err != nil {
		return err
	}
	for ending, content := range map[string][]byte{".mod": text, ".info": info} {
		if err := os.WriteFile(filepath.Join(folder, version+ending), content, 0o644); err != nil {
			return err
		}
	}
	list, err := os.OpenFile(filepath.Join(folder, "list"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(list, version); err != nil {
		return err
	}
	if err := list.Close(); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(folder, version+".zip"))
	if err != nil {
		return err
	}
	if err := modzip.CreateFromDir(out, module.Version{Path: path, Version: version}, t.in(dir)); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return t.checkZip(out.Name(), path+"@"+version)
}

// checkZip reports a module's archive without the licence.
func (t tree) checkZip(name, prefix string) error {
	want, err := os.ReadFile(t.in("LICENSE"))
	if err != nil {
		return err
	}
	z, err := zip.OpenReader(name)
	if err != nil {
		return err
	}
	defer z.Close()
	f, err := z.Open(prefix + "/LICENSE")
	if err != nil {
		return fmt.Errorf("the archive of %s has no LICENSE: copy that of the root", prefix)
	}
	got, err := io.ReadAll(f)
	if err == nil && string(got) != string(want) {
		err = fmt.Errorf("the archive of %s has another LICENSE than the root", prefix)
	}
	return err
}
