package fence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// WriteFile replaces a file, unless the context's lease is stale. For files there is no compare-and-swap: a rename takes
// whatever comes last. So each token has a file of its own, name.<token>.<issuer>, which is written once, and [ReadFile] reads
// that of the highest token. A superseded holder that writes late changes nothing for readers.
//
// The file appears at once, with its whole contents, and is synced to the disk. Files of smaller tokens are deleted. The error
// is a [StaleError] if there is a larger token, an [ErrForeign] if there is a file of another issuer, and an [fs.ErrExist] if this token has written already.
//
// It is for files that are replaced as a whole. If the new contents depend on the old ones, a superseded holder's last write may be lost: use a database.
// The folder must support hard links.
func WriteFile(ctx context.Context, name string, data []byte, perm fs.FileMode) error {
	g, err := oneGrant(ctx)
	if err != nil {
		return err
	}
	if strings.ContainsAny(g.issuer, `/\.`) {
		return invalid("the issuer %.200q can't be part of a file's name", g.issuer)
	}
	if err := g.newest(name); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.tmp")
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Chmod(perm), temp.Sync(), temp.Close())
	if err != nil {
		return fmt.Errorf("fence: write %s: %w", name, err)
	}
	// A link, not O_EXCL with writes after it: readers must not find a part of the contents.
	own := name + "." + strconv.FormatInt(g.token, 10) + "." + g.issuer
	if err := os.Link(temp.Name(), own); err != nil {
		return fmt.Errorf("fence: write %s with token %d: %w", name, g.token, err)
	}
	if err := syncDir(filepath.Dir(name)); err != nil {
		return fmt.Errorf("fence: write %s: %w", name, err)
	}
	err = g.newest(name)
	if errors.Is(err, ErrStale) || errors.Is(err, ErrForeign) {
		_ = os.Remove(own) // no reader may take it: of two issuers' tokens none is the larger one
	}
	return err
}

// newest returns an error if there is a file of a larger token or of another issuer. It deletes files of smaller tokens if there is one of the token.
func (g Grant) newest(name string) error {
	all, err := versions(name)
	if err != nil {
		return err
	}
	own := false
	for _, v := range all {
		if v.issuer != g.issuer {
			return foreign(g.resource, g.issuer, v.issuer)
		}
		if v.token > g.token {
			return &StaleError{Resource: g.resource, Token: g.token, Highest: v.token}
		}
		own = own || v.token == g.token
	}
	for _, v := range all {
		if own && v.token < g.token {
			_ = os.Remove(v.path)
		}
	}
	return nil
}

// ReadFile returns the contents that the holder of the highest token has written with [WriteFile], and the token. Without any the error is an [fs.ErrNotExist].
func ReadFile(name string) (data []byte, token int64, err error) {
	for {
		all, err := versions(name)
		if err != nil {
			return nil, 0, err
		}
		highest := version{}
		for _, v := range all {
			if v.token > highest.token {
				highest = v
			}
		}
		if highest.token == 0 {
			return nil, 0, fmt.Errorf("fence: %w", &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist})
		}
		data, err := os.ReadFile(highest.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a newer one has replaced it
		}
		if err != nil {
			return nil, 0, fmt.Errorf("fence: %w", err)
		}
		return data, highest.token, nil
	}
}

// A version is what one token has written.
type version struct {
	path, issuer string
	token        int64
}

// versions lists what was written under a name.
func versions(name string) ([]version, error) {
	entries, err := os.ReadDir(filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	var all []version
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), filepath.Base(name)+".")
		if !ok {
			continue
		}
		digits, issuer, ok := strings.Cut(rest, ".")
		token, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || token <= 0 || strconv.FormatInt(token, 10) != digits || issuer == "" || strings.Contains(issuer, ".") {
			continue
		}
		all = append(all, version{filepath.Join(filepath.Dir(name), e.Name()), issuer, token})
	}
	return all, nil
}

// syncDir makes the names in a folder durable, where the system can do that.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, fs.ErrInvalid) && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
