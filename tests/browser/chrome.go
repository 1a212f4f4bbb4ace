package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// A tab is a tab of the browser, and what its console said.
type tab struct {
	ctx context.Context

	mu      sync.Mutex
	said    []string // errors and warnings
	reports int      // of the policy
}

// reporter makes the console say what the policy of a page refuses.
const reporter = `addEventListener('securitypolicyviolation', e => console.error('csp: ' + e.effectiveDirective + ' ' + e.blockedURI + ' ' + e.sample))`

// startBrowser starts the browser, with one tab.
func startBrowser(ctx context.Context) (*tab, func(), error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, servertest.ErrMissing{Program: "chromium", Package: "chromium"}
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("hide-scrollbars", false))
	t := &tab{}
	ctx, endBrowser := chromedp.NewExecAllocator(ctx, options...)
	ctx, endTab := chromedp.NewContext(ctx, chromedp.WithListener(t.hear))
	t.ctx = ctx
	err = chromedp.Do(ctx, // it starts the browser, which ends with its context
		command(log.Enable, cdp.Empty{}), command(runtime.Enable, cdp.Empty{}),
		command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: reporter}))
	if err != nil {
		endTab()
		endBrowser()
		return nil, nil, fmt.Errorf("chromium: %w", err)
	}
	return t, func() { endTab(); endBrowser() }, nil
}

// hear notes what the console says.
func (t *tab) hear(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Source == log.EntrySourceNetwork && (strings.Contains(e.Entry.Text, "status of 404") && strings.Contains(e.Entry.URL, "/search?") || strings.Contains(e.Entry.Text, "status of 409") && strings.Contains(e.Entry.URL, "/act?")) {
			return // the page says that nothing was found, or that it can't be done now
		}
		t.said = append(t.said, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *runtime.EventConsoleAPICalled:
		var words []string
		for _, a := range e.Args {
			words = append(words, string(a.Value))
		}
		text := strings.Join(words, " ")
		if strings.Contains(text, "csp: ") {
			t.reports++
		}
		t.said = append(t.said, fmt.Sprintf("%s: %s", e.Type, text))
	case *runtime.EventExceptionThrown:
		t.said = append(t.said, "exception: "+e.ExceptionDetails.Text)
	}
}

// heard returns what the console has said since the last call.
func (t *tab) heard() (said []string, reports int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	said, reports = t.said, t.reports
	t.said, t.reports = nil, 0
	return said, reports
}

// command makes an action of a command of the protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, c, params)
		return err
	})
}

// do runs actions, within the time that they may take.
func (t *tab) do(actions ...chromedp.Action[chromedp.Void]) error {
	_, err := result(t, chromedp.Steps(actions...))
	return err
}

// result returns what an action returns, within the time that one may take.
func result[T any](t *tab, a chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, a)
}

// open goes to an address.
func (t *tab) open(url string) error { return t.do(chromedp.Navigate(url)) }

// eval evaluates an expression, and waits if it is a promise.
func eval[T any](t *tab, expression string) (T, error) {
	return result(t, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// size sets the width of the window. A narrow one is a phone.
func (t *tab) size(width int64) error {
	p := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1}
	if width < 600 {
		p.Height, p.Mobile = 780, true
	}
	return t.do(command(emulation.SetDeviceMetricsOverride, p), command(emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: p.Mobile}))
}

// dark sets the colours that the system prefers. Nothing moves meanwhile.
func (t *tab) dark(dark bool) error {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	return t.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}))
}

// scripts says whether pages may run scripts.
func (t *tab) scripts(on bool) error {
	return t.do(command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on}))
}

// becomes waits until an expression is true.
func (t *tab) becomes(what, expression string) error {
	var last error
	if err := until(t.ctx, what, func() bool {
		ok, err := eval[bool](t, "!!("+expression+")")
		last = err
		return ok
	}); err != nil {
		if last != nil {
			return fmt.Errorf("%w: %w", err, last)
		}
		return err
	}
	return nil
}
