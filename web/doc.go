// Package web serves pages that show queues and jobs in a browser, over an inspect.Inspector. The pages change nothing, unless Config.Authorize says who
// may act.
//
//	pages, err := web.New(inspector, web.Config{})
//	...
//	mux.Handle("/signalbox/", onlyOperators(pages))
//
// Any prefix will do, with http.StripPrefix or without, and also behind a proxy that takes the prefix off: only the last element of a path
// counts, and all links are relative.
//
// The package asks nobody who they are. Put your own check in front of the handler, as onlyOperators above: whoever gets through sees all queues,
// with the errors and stacks of their jobs, unless Config.Queues says less. Arguments, results and headers of jobs are hidden until Config.Show allows them.
//
// The pages work without JavaScript. With it they look again every few seconds, but not while the tab is hidden or somebody has paused them.
// A handler has no goroutine and calls no Redis while nobody looks. Requests for the same share one look: see New.
//
// docs/web.md describes the pages.
package web
