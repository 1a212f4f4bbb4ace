package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/signalbox-go/signalbox/scheduler"
)

// An action is something that a user does on a page, and how the page is then.
type action struct {
	name, path string
	do         func(t *tour) error
	becomes    string // an expression that becomes true
}

// press presses keys, one after the other.
func press(keys ...string) func(t *tour) error {
	return func(t *tour) error {
		for _, k := range keys {
			if err := t.tab.do(chromedp.KeyEvent(k)); err != nil {
				return err
			}
		}
		return nil
	}
}

// click clicks what a selector finds.
func click(selectors ...string) func(t *tour) error {
	return func(t *tour) error {
		for _, s := range selectors {
			if err := t.tab.do(chromedp.Click(chromedp.CSS(s))); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	}
}

// fill types into an empty field, and sends its form by Enter.
func fill(selector, text string) func(t *tour) error {
	return func(t *tour) error {
		return t.tab.do(chromedp.SendKeys(chromedp.CSS(selector), text+kb.Enter))
	}
}

// bareActions work without scripts, and with them.
var bareActions = []action{
	{"search for a queue", "", fill("#q", "tenants"), `document.querySelector('h1').innerText === 'tenants'`},
	{"search for a job", "", fill("#q", "bounced-03"), `document.querySelector('h1').innerText === 'bounced-03'`},
	{"search for what is not there", "", fill("#q", "nothing"), `document.querySelector('h1').innerText.includes('Nothing has that name')`},
	{"narrow a list", "jobs?queue=mail&state=dead", fill("[name=error]", "503"), `location.search.includes('error=503') && document.querySelectorAll('[data-row]').length === 12`},
	{"take a filter away", "jobs?queue=mail&state=dead&error=nothing", click(".chip a"), `!location.search.includes('error=') && document.querySelectorAll('[data-row]').length === 12`},
	{"next page of a list", "jobs?queue=mail&state=scheduled", click(".pager a[href*=after]"), `location.search.includes('after=') && document.querySelectorAll('[data-row]').length > 10`},
	{"another state", "jobs?queue=mail&state=dead", click(".tabs a[href*=completed]"), `document.querySelectorAll('[data-row]').length === 50`},
	{"open a job", "jobs?queue=mail&state=dead", click("[data-open]"), `document.querySelector('h1').innerText.startsWith('bounced-')`},
	{"open a batch", "flows?queue=news", click("tbody tr:last-child [data-open]"), `document.querySelector('h1').innerText === 'spring' && document.querySelectorAll('.share rect').length === 3`},
	{"open a callback of a batch", "flow?queue=news&id=spring", click("[data-part=callbacks] [data-open]"), `document.querySelector('h1').innerText.startsWith('spring-')`},
	{"open the batch of a job", "job?queue=news&id=spring-report", click(".facts a[href*=flow]"), `document.querySelector('h1').innerText === 'spring'`},
	{"open the members of a batch that failed", "flow?queue=news&id=spring", click("[data-part=failed] [data-open]"), `document.querySelectorAll('[data-row]').length === 3`},
	{"show the command", "job?queue=mail&id=bounced-00", click(".fold summary"), `document.querySelector('.fold[open] .cmd')?.checkVisibility()`},
	{"look for locks", "locks", click("main form button"), `document.querySelectorAll('.token').length === 3`},
	{"ask the doctor", "doctor?queue=pdf", click("main form button"), `document.querySelector('.proof').innerText.includes('each in exactly one state')`},
	{"show the keys", "", click("[popovertarget=help]"), `document.querySelector('#help').matches(':popover-open')`},
}

// themeActions set the colours without scripts.
var themeActions = []action{
	{"set night", "workers", click("[popovertarget=view]", "[value=dark]", "#view button"), `document.documentElement.dataset.theme === 'dark'`},
	{"set the colours of the system", "workers", click("[popovertarget=view]", "[value=system]", "#view button"), `!document.documentElement.dataset.theme`},
}

// liveActions need scripts.
var liveActions = []action{
	{"the key /", "", press("/"), `document.activeElement.id === 'q'`},
	{"the keys g j", "", press("g", "j"), `location.pathname.endsWith('/jobs') && document.querySelector('h1').innerText === 'Jobs'`},
	{"the keys g w", "", press("g", "w"), `location.pathname.endsWith('/workers')`},
	{"the keys g o", "workers", press("g", "o"), `location.pathname.endsWith('/') && document.querySelector('h1').innerText === 'Overview'`},
	{"the keys g c", "", press("g", "c"), `document.querySelector('h1').innerText === 'Cron'`},
	{"the keys g g", "", press("g", "g"), `document.querySelector('h1').innerText === 'Groups and limits'`},
	{"the keys g l", "", press("g", "l"), `document.querySelector('h1').innerText === 'Locks'`},
	{"the keys g d", "", press("g", "d"), `document.querySelector('h1').innerText === 'Doctor'`},
	{"the keys g r", "", press("g", "r"), `document.querySelector('h1').innerText === 'Redis'`},
	{"the keys j j k", "jobs?queue=mail&state=dead", press("j", "j", "k"), `document.activeElement === document.querySelector('[data-open]')`},
	{"the keys j Enter", "jobs?queue=mail&state=dead", press("j", kb.Enter), `location.pathname.endsWith('/job')`},
	{"the key ?", "", press("?"), `document.querySelector('#help').matches(':popover-open')`},
	{"the keys ? Escape", "", press("?", kb.Escape), `!document.querySelector('#help').matches(':popover-open')`},
	{"the key t", "", press("t"), `document.documentElement.dataset.theme`},
	{"night stays on another page", "workers", press(), `document.documentElement.dataset.theme`},
	{"the colours of the system", "", click("[popovertarget=view]", "[value=system]"), `!document.documentElement.dataset.theme`},
	{"times of the computer", "", click("[popovertarget=view]", "[name=zone][value=local]"), `document.querySelector('[name=zone][value=local]').checked`},
	{"times in UTC", "", click("[popovertarget=view]", "[name=zone][value=utc]"), `document.querySelector('[data-zone]').innerText.trim() === 'UTC'`},
	{"the key p", "", press("p"), `document.querySelector('[data-live]').innerText.trim() === 'paused' && document.querySelector('link[rel=icon]').href.includes('idle')`},
	{"paused stays on another page", "workers", press(), `document.querySelector('[data-live]').innerText.trim() === 'paused'`},
	{"go on", "", click("[data-live]"), `document.querySelector('[data-live]').innerText.trim() === 'live'`},
	{"a page looks again", "queue?name=pdf", enqueued("pdf", "looked-for", render{"one more"}), `document.querySelector('.figs').innerText.match(/Ready\s+(\d+)/)[1] === '13'`},
}

// enqueued enqueues a job while a page is open.
func enqueued(queue, id string, args render) func(t *tour) error {
	return func(t *tour) error {
		_, err := t.sched.Enqueue(t.tab.ctx, args, scheduler.Queue(queue), scheduler.ID(id))
		return err
	}
}

// pull is an action by a lever of a page: the page that asks, its button, and what is said then.
func pull(path, lever, says string) action {
	return action{
		"lever " + lever, path, click(`a[href*="`+lever+`"]`, "main form button"),
		fmt.Sprintf("document.querySelector('h1').innerText === %q", says),
	}
}

// give pulls a lever as pull does, and gives a reason before.
func give(path, lever, reason, says string) action { return fillIn(path, lever, "why", reason, says) }

// fillIn pulls a lever as pull does, and fills in a field before.
func fillIn(path, lever, field, value, says string) action {
	a := pull(path, lever, says)
	a.do = func(t *tour) error {
		if err := click(`a[href*="` + lever + `"]`)(t); err != nil {
			return err
		}
		if err := t.tab.do(chromedp.SetValue(chromedp.CSS("[name="+field+"]"), value)); err != nil {
			return err
		}
		return click("main form button")(t)
	}
	return a
}

// levers pull each lever. n tells apart the jobs that it is done to.
func levers(n int) []action {
	jobOf := func(queue, id string, n int) (path, name string) {
		name = fmt.Sprintf("%s-%02d", id, n)
		return address("job", "queue", queue, "id", name), name
	}
	job := func(id string, n int) (path, name string) { return jobOf("mail", id, n) }
	bounced, dead := job("bounced", n)
	soon, scheduled := job("later", n+20)
	later, last := job("later", n)
	report, archived := jobOf("reports", "report", n)
	batch := map[int]string{10: "summer", 11: "autumn"}[n]
	flow := address("flow", "queue", "news", "id", batch)
	welcome, completed := job("welcome", n)
	tenants := address("groups", "queue", "tenants")
	return []action{
		pull(address("queue", "name", "pdf"), "do=pause", "pdf is paused"),
		pull(address("queue", "name", "pdf"), "do=resume", "pdf is resumed"),
		pull(address("queue", "name", "pdf"), "do=hold", "pdf is held back"),
		pull(address("queue", "name", "pdf"), "do=release", "pdf is not held back any more"),
		pull(tenants, "do=pause&group=globex", "globex is paused"),
		pull(tenants, "do=resume&group=globex", "globex is resumed"),
		pull(tenants, "do=hold&group=globex", "globex is held back"),
		pull(tenants, "do=release&group=globex", "globex is not held back any more"),
		fillIn(address("queue", "name", "pdf"), "setting=MaxLength", "length", fmt.Sprint(1000*n), "Maximum length is set"),
		fillIn(tenants, "do=set&group=globex", "running", fmt.Sprint(n), "globex has these limits"),
		pull("cron", "do=pause&entry=invoices", "invoices is paused"),
		pull("cron", "do=resume&entry=invoices", "invoices is resumed"),
		pull("cron", "do=run&entry=sweep", "sweep was run"),
		pull(bounced, "do=retry", dead+" is ready"),
		pull(soon, "do=cancel", scheduled+" is cancelled"),
		give(report, "do=archive", "the customer <b>has</b> left", archived+" is archived"),
		{"a reason", report, press(), `document.querySelector('.stack-trace').innerText === 'archived: the customer <b>has</b> left'`},
		give(flow, "do=cancel", "sent by mistake", batch+" is cancelled"),
		{"a batch that is over", flow, press(), `document.querySelector('.because').innerText.includes('It was cancelled') && !document.querySelector('main a[href*="do="]')`},
		pull(later, "do=delete", last+" is deleted"),
		pull(welcome, "do=retry", completed+" is ready"),
	}
}

// act does all actions.
func (t *tour) act() error {
	if err := t.tab.size(1440); err != nil {
		return err
	}
	scripted := slices.Concat(bareActions, liveActions, levers(10))
	if t.quick {
		scripted = liveActions // the others are done without scripts
	}
	for _, part := range []struct {
		name    string
		scripts bool
		actions []action
	}{
		{", without scripts", false, slices.Concat(bareActions, themeActions, levers(11))},
		{"", true, scripted},
	} {
		if err := t.tab.scripts(part.scripts); err != nil {
			return err
		}
		for _, a := range part.actions {
			if err := t.tab.open(t.url + a.path); err != nil {
				return err
			}
			err := a.do(t)
			if err == nil {
				err = t.tab.becomes(a.name+part.name, a.becomes)
			}
			if err != nil {
				at, _ := eval[string](t.tab, `location.href + ' ' + document.body.innerText.slice(0, 2000)`)
				t.wrong(a.name+part.name, "%v\n\tthe page is %s", err, strings.ReplaceAll(at, "\n", " | "))
			}
			t.actions++
			t.listen(a.name + part.name)
		}
	}
	return nil
}
