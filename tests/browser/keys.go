package main

import (
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const (
	// reachable marks all that the key Tab must reach, and returns how many.
	reachable = `(() => {
		const all = [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')].filter(e => !e.disabled && e.checkVisibility({checkVisibilityCSS: true}) && e.tabIndex >= 0)
		all.forEach(e => { e.__due = true })
		document.activeElement?.blur()
		return all.length
	})()`
	// stepped looks at what has the focus, and returns what is wrong with it; "end" if nothing has it.
	stepped = `(() => {
		const e = document.activeElement
		if (!e || e === document.body) return ['end']
		const wrong = [], name = e.tagName + ' ' + (e.innerText ?? '').slice(0, 40), s = getComputedStyle(e), r = e.getBoundingClientRect()
		e.__due = false
		const ring = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0 || s.boxShadow !== 'none'
		if (!ring) wrong.push('no focus ring: ' + name)
		if (r.bottom <= 0 || r.top >= innerHeight || r.right <= 0 || r.left >= innerWidth) wrong.push('the focus is out of sight: ' + name)
		else if (r.height && r.width) {
			const x = Math.min(innerWidth - 2, Math.max(1, r.left + Math.min(r.width / 2, 8))), y = Math.min(innerHeight - 2, Math.max(1, r.top + r.height / 2)), top = document.elementFromPoint(x, y)
			if (top && !e.contains(top) && !top.contains(e) && top.closest('.bar, .bulk')) wrong.push('the focus is under the bar: ' + name)
		}
		return wrong
	})()`
	// missed returns what Tab has not reached.
	missed = `[...document.querySelectorAll('*')].filter(e => e.__due && e.isConnected).map(e => e.outerHTML.slice(0, 120))`
	// mostSteps bounds the walk: no page has so many.
	mostSteps = 500
)

// tabs goes through a page by the key Tab.
func (t *tour) tabs(s stop) error {
	if err := t.tab.size(1440); err != nil {
		return err
	}
	if err := t.tab.open(t.url + s.path); err != nil {
		return err
	}
	// A page that looks again would replace what is marked.
	if _, err := eval[any](t.tab, `window.stop(); !document.querySelector('[data-still]') && document.querySelector('[data-live]').getAttribute('aria-pressed') === 'true' && document.querySelector('[data-live]').click(); 0`); err != nil {
		return err
	}
	n, err := eval[int](t.tab, reachable)
	if err != nil {
		return err
	}
	for range min(n+10, mostSteps) {
		if err := t.tab.do(chromedp.KeyEvent(kb.Tab)); err != nil {
			return err
		}
		wrong, err := eval[[]string](t.tab, stepped)
		if err != nil {
			return err
		}
		if len(wrong) == 1 && wrong[0] == "end" {
			break
		}
		for _, w := range wrong {
			t.wrong(s.name+", by keyboard", "%s", w)
		}
	}
	left, err := eval[[]string](t.tab, missed)
	if err != nil {
		return err
	}
	for _, l := range left {
		t.wrong(s.name+", by keyboard", "Tab does not reach %s", l)
	}
	t.looks++
	_, err = eval[any](t.tab, `!document.querySelector('[data-still]') && document.querySelector('[data-live]').click(); 0`)
	return err
}
