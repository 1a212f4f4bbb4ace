package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
)

// A tour is a walk through all pages.
type tour struct {
	*stage
	axe      string
	pictures string // a folder, or ""
	quick    bool

	tab                                    *tab
	found                                  []string
	pages, actions, looks, faults, reports int
}

// A stop is a page.
type stop struct {
	name, path string
	in         form
}

// A form is what the quick form looks at.
type form int

const (
	looks form = iota // in both widths, and without scripts
	keys              // also by keyboard
	never
)

// address returns the address of a page with a query.
func address(page string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return page + "?" + q.Encode()
}

// stops are the pages.
func stops() []stop {
	list := []stop{
		{"overview", "", keys},
		{"overview-trouble", "?sort=trouble", never},
		{"queue", address("queue", "name", "mail"), keys},
		{"queue-paused", address("queue", "name", "reports"), never},
		{"queue-groups", address("queue", "name", "tenants"), never},
		{"queue-hostile", address("queue", "name", hostile), looks},
		{"counts", "jobs", looks},
		{"jobs-dead", address("jobs", "queue", "mail", "state", "dead"), keys},
		{"jobs-scheduled", address("jobs", "queue", "mail", "state", "scheduled"), never},
		{"jobs-running", address("jobs", "queue", "tenants", "state", "running"), looks},
		{"jobs-ready", address("jobs", "queue", "pdf", "state", "ready"), never},
		{"jobs-completed", address("jobs", "queue", "mail", "state", "completed"), looks},
		{"jobs-filter", address("jobs", "queue", "mail", "state", "dead", "error", "503", "kind", "mail.bounce"), never},
		{"jobs-none", address("jobs", "queue", "mail", "state", "cancelled"), looks},
		{"job-dead", address("job", "queue", "mail", "id", "bounced-00"), keys},
		{"job-retried", address("job", "queue", "mail", "id", "retried-00"), never},
		{"job-completed", address("job", "queue", "mail", "id", "welcome-00"), looks},
		{"job-stuck", address("job", "queue", "media", "id", "film-1"), looks},
		{"job-gone", address("job", "queue", "video", "id", "clip-1"), never},
		{"job-hostile", address("job", "queue", hostile, "id", hostile), looks},
		{"flows", address("flows", "queue", "news"), looks},
		{"flow", address("flow", "queue", "news", "id", "spring"), keys},
		{"flow-hostile", address("flow", "queue", hostile, "id", hostile[:60]), looks},
		{"workers", "workers", keys},
		{"cron", "cron", keys},
		{"limits", "groups", looks},
		{"groups", address("groups", "queue", "tenants"), keys},
		{"groups-hostile", address("groups", "queue", hostile), never},
		{"locks", "locks", looks},
		{"locks-held", "locks?key=*", keys},
		{"doctor", "doctor", looks},
		{"doctor-mail", address("doctor", "queue", "mail", "look", "yes"), keys},
		{"redis", "redis", looks},
		{"act-hold", address("act", "do", "hold", "queue", "mail"), keys},
		{"act-delete", address("act", "do", "delete", "queue", "mail", "job", "bounced-00"), looks},
		{"act-hostile", address("act", "do", "delete", "queue", hostile, "job", hostile), looks},
		{"act-batch", address("act", "do", "cancel", "queue", "news", "batch", "spring"), keys},
		{"act-batch-hostile", address("act", "do", "cancel", "queue", hostile, "batch", hostile[:60]), looks},
		{"act-archive", address("act", "do", "archive", "queue", "mail", "job", "later-50"), looks},
		{"act-setting", address("act", "do", "set", "queue", "mail", "setting", "Limits"), keys},
		{"act-setting-hostile", address("act", "do", "set", "queue", hostile, "setting", "Retention"), looks},
		{"act-group", address("act", "do", "set", "queue", "tenants", "group", "globex"), looks},
		{"act-remove-wrong", address("act", "do", "remove", "queue", "mail"), looks},
		{"act-reset", address("act", "do", "reset", "queue", "mail", "setting", "CopyDead"), looks},
		{"act-wrong-state", address("act", "do", "cancel", "queue", "mail", "job", "bounced-00"), looks},
		{"search-none", "search?q=nothing", looks},
	}
	return list
}

// widths are those of the windows.
func (t *tour) widths() []int64 {
	if t.quick {
		return []int64{360, 1440}
	}
	return []int64{360, 768, 1024, 1440, 1920}
}

// run goes through all pages. Its error says that the tour could not go on; what is wrong with the pages is in found.
func (t *tour) run(ctx context.Context) (err error) {
	tab, end, err := startBrowser(ctx)
	if err != nil {
		return err
	}
	defer end()
	t.tab = tab
	seen := map[string]bool{}
	for _, part := range []struct {
		name string
		run  func(stop) error
		of   func(stop) bool // whether the quick form does it
	}{
		{"looks", t.look, func(s stop) bool { return s.in != never }},
		{"keys", t.tabs, func(s stop) bool { return s.in == keys }},
		{"without scripts", t.bare, func(s stop) bool { return s.in != never }},
	} {
		begun := time.Now()
		for _, s := range stops() {
			if t.quick && !part.of(s) {
				continue
			}
			seen[s.name] = true
			if err := part.run(s); err != nil {
				return fmt.Errorf("%s, %s: %w", part.name, s.name, err)
			}
			t.listen(part.name + ", " + s.name)
		}
		fmt.Printf("%s: %.0f s\n", part.name, time.Since(begun).Seconds())
	}
	t.pages = len(seen)
	begun := time.Now()
	if err := t.act(); err != nil {
		return err
	}
	fmt.Printf("actions: %.0f s\n", time.Since(begun).Seconds())
	return nil
}

// wrong notes a finding.
func (t *tour) wrong(where, format string, args ...any) {
	t.found = append(t.found, where+": "+fmt.Sprintf(format, args...))
}

// listen notes what the console said.
func (t *tour) listen(where string) {
	said, reports := t.tab.heard()
	t.reports += reports
	for _, text := range said {
		t.wrong(where, "the console says %s", text)
	}
}

// geometry returns what is wrong with the boxes of a page.
const geometry = `(() => {
	const wrong = [], root = document.documentElement
	if (root.scrollWidth > root.clientWidth) {
		const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > root.clientWidth + 1 && !e.closest('.scroll, .tabs, .pages, pre, .cmd, svg'))
		wrong.push('it scrolls sideways: ' + root.scrollWidth + ' px of ' + root.clientWidth + ', by ' + wide.slice(0, 3).map(e => e.tagName + '.' + e.className).join(', '))
	}
	const ids = [...document.querySelectorAll('[id]')].map(e => e.id)
	ids.filter((id, i) => ids.indexOf(id) !== i).forEach(id => wrong.push('two elements have the ID ' + id))
	const texts = [...document.querySelectorAll('svg.events text')].filter(e => e.checkVisibility()).map(e => [e.textContent, e.getBoundingClientRect()])
	texts.forEach(([a, r], i) => texts.slice(0, i).forEach(([b, o]) => { if (r.width && o.width && r.left < o.right && o.left < r.right && r.top + 3 < o.bottom && o.top + 3 < r.bottom) wrong.push('two texts lie over each other: ' + a + ', ' + b) }))
	document.querySelectorAll('[style]').forEach(e => wrong.push('an inline style: ' + e.outerHTML.slice(0, 100)))
	if (document.querySelectorAll('h1').length !== 1) wrong.push('it has not one h1')
	if (/\bNaN\b|undefined|%!|<nil>|0001-01-01/.test(document.body.innerText)) wrong.push('it has a value that was not made: ' + document.body.innerText.match(/.{0,30}(\bNaN\b|undefined|%!|<nil>|0001-01-01).{0,30}/)[0])
	return wrong
})()`

// audit runs axe with options, and returns a line for each finding.
const audit = `axe.run(document, %s).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ' (' + v.impact + ') ' + n.target.join(' ') + ': ' + n.failureSummary.replaceAll('\n', ' '))))`

// By day all rules are looked at, and by night those of colours: nothing else differs.
var themes = []struct{ name, options string }{
	{"day", `{resultTypes: ['violations'], preload: false, rules: {'target-size': {enabled: true}}}`},
	{"night", `{resultTypes: ['violations'], preload: false, runOnly: ['color-contrast', 'link-in-text-block']}`},
}

// look looks at a page in each width and by day and night.
func (t *tour) look(s stop) error {
	if err := t.tab.open(t.url + s.path); err != nil {
		return err
	}
	if _, err := eval[any](t.tab, t.axe+";0"); err != nil {
		return err
	}
	for _, width := range t.widths() {
		for _, theme := range themes {
			where := fmt.Sprintf("%s, %d px, %s", s.name, width, theme.name)
			if err := t.tab.size(width); err != nil {
				return err
			}
			if err := t.tab.dark(theme.name == "night"); err != nil {
				return err
			}
			boxes, err := eval[[]string](t.tab, geometry)
			if err != nil {
				return err
			}
			faults, err := eval[[]string](t.tab, fmt.Sprintf(audit, theme.options))
			if err != nil {
				return err
			}
			t.looks++
			t.faults += len(faults)
			for _, f := range append(boxes, faults...) {
				t.wrong(where, "%s", f)
			}
			if err := t.picture(fmt.Sprintf("%s-%d-%s.png", s.name, width, theme.name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// picture writes a picture of the page, if somebody wants them.
func (t *tour) picture(name string) error {
	if t.pictures == "" {
		return nil
	}
	png, err := result(t.tab, chromedp.FullScreenshot(100))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.pictures, name), png, 0o644)
}

// bare looks at a page without scripts: all of it is there, and nothing that needs them.
func (t *tour) bare(s stop) error {
	if err := t.tab.scripts(false); err != nil {
		return err
	}
	if err := t.tab.open(t.url + s.path); err != nil {
		return err
	}
	text, err := eval[string](t.tab, `document.querySelector('main').innerText`)
	if err != nil {
		return err
	}
	idle, err := eval[[]string](t.tab, `[...document.querySelectorAll('button')].filter(b => b.checkVisibility() && b.type !== 'submit' && !b.popoverTargetElement).map(b => b.outerHTML.slice(0, 100))`)
	if err != nil {
		return err
	}
	if len(strings.Fields(text)) < 3 {
		t.wrong(s.name+", without scripts", "it is empty")
	}
	for _, b := range idle {
		t.wrong(s.name+", without scripts", "a button does nothing: %s", b)
	}
	t.looks++
	return t.tab.scripts(true)
}
