package web

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"time"
)

//go:embed assets templates
var embedded embed.FS

// An asset is a file that pages need.
type asset struct {
	kind, version string
	data          []byte
}

// assets are the files that pages need, by their names.
var assets = readAssets()

func readAssets() map[string]*asset {
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".mjs": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	all := make(map[string]*asset)
	files, err := embedded.ReadDir("assets")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, f := range files {
		data, err := embedded.ReadFile("assets/" + f.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(data)
		all[f.Name()] = &asset{kinds[path.Ext(f.Name())], hex.EncodeToString(sum[:6]), data}
	}
	return all
}

// serve sends the file. A browser may keep it under the address that pages have, which has its version.
func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Content-Length", strconv.Itoa(len(a.data)))
	if r.URL.Query().Get("v") == a.version {
		h.Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	_, _ = w.Write(a.data)
}

// assetLink returns the address of a file.
func assetLink(name string) string { return link(name, "v", assets[name].version) }

// templates are the pages.
var templates = readTemplates("overview", "queue", "jobs", "job", "flows", "flow", "workers", "cron", "groups", "locks", "doctor", "redis", "act", "message")

func readTemplates(names ...string) map[string]*template.Template {
	all := make(map[string]*template.Template)
	for _, name := range names {
		all[name] = template.Must(template.New(name).Funcs(funcs).ParseFS(embedded, "templates/shell.html", "templates/parts.html", "templates/"+name+".html"))
	}
	return all
}

var funcs = template.FuncMap{
	"n":      func(n any) string { return commas(whole(n)) },
	"span":   span,
	"size":   size,
	"name":   name,
	"moment": moment,
	"day":    day,
	"asset":  assetLink,
	"link":   link,
	"lines":  block,
	"clean":  clean,
	"sig":    func(arm string) icon { return icon{"s-" + arm, "sig", "0 0 16 17"} },
	"icon":   func(name string) icon { return icon{"i-" + name, "i", ""} },
}

// An icon is a picture of the shell's definitions.
type icon struct{ ID, Class, Box string }

func whole(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	}
	panic("web: n of a template wants a number")
}

// A frame is what the template "shell" shows around a page.
type frame struct {
	Title   string // of the tab
	Own     string // Config.Title
	Theme   string
	Icon    string
	Pages   []navigation
	Queues  []navigation
	More    int // queues that are left out of the list
	At      template.HTML
	Away    string // why the state is old
	Age     string
	Missing []missing
	Status  int
	Name    string
	Acts    bool // the pages have levers, for those who may
	Files   []act
	Still   bool // it doesn't look again by itself
	Body    any
}

// A navigation is a link of the list of pages or queues.
type navigation struct {
	Name, To, Arm, Word string
	Note                string
	Bad, Here           bool
}

// A missing is what could not be read.
type missing struct{ What, Why string }

// mostRail is how many queues the list beside each page has.
const mostRail = 40

// shell returns what is around a page.
func (v *visit) shell(a *answer) *frame {
	s := v.state
	f := &frame{Title: a.title, Own: v.cfg.Title, Name: a.name, Still: a.still, Files: v.files(a), Acts: v.cfg.Authorize != nil, Status: cmp.Or(a.status, http.StatusOK), Body: a.body, Icon: "favicon.svg"}
	if c, err := v.Cookie(themeCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		f.Theme = c.Value
	}
	if f.Own != "" {
		f.Own = clean(f.Own, 100)
	}
	if v.away != nil {
		f.Away = v.reason(v.away)
		f.Icon = "favicon-stop.svg"
		f.Title = "Redis is away · " + f.Title
	}
	if s.at.IsZero() {
		f.At = stamped(time.Now(), "not known")
	} else {
		f.At = moment(s.at)
		if v.away != nil {
			f.Age = span(max(0, time.Since(s.at)).Round(time.Second))
		}
	}
	for i, what := range s.missing {
		f.Missing = append(f.Missing, missing{what, v.reason(s.why[i])})
	}
	list := s.troubles()
	var dangers, cautions int64
	arms := map[string]*trouble{}
	for i := range list {
		t := &list[i]
		if t.Danger {
			dangers++
		} else {
			cautions++
		}
		if arms[t.Queue] == nil {
			arms[t.Queue] = t // the worst comes first
		}
	}
	if v.away == nil && len(s.queues) > 0 {
		switch {
		case dangers > 0:
			f.Title, f.Icon = counted(dangers, "danger")+" · "+f.Title, "favicon-stop.svg"
		case cautions > 0:
			f.Title = counted(cautions, "caution") + " · " + f.Title
		default:
			f.Icon = "favicon-clear.svg"
		}
	}
	var dead int64
	for i := range s.queues {
		q := &s.queues[i]
		dead += q.Dead
		here := q.Name == a.queue
		if i >= mostRail && !here {
			f.More++
			continue
		}
		nav := navigation{Name: q.Name, To: link("queue", "name", q.Name), Arm: "clear", Note: commas(q.Ready), Here: here}
		if t := arms[q.Name]; t != nil {
			nav.Arm, nav.Word = t.Arm(), t.Word
		} else if len(q.Workers) == 0 && q.Ready == 0 {
			nav.Arm, nav.Word = "idle", "no worker"
		}
		f.Queues = append(f.Queues, nav)
	}
	f.Pages = []navigation{{Name: "Overview", To: link("")}, {Name: "Jobs", To: link("jobs")}, {Name: "Workers", To: link("workers")}, {Name: "Cron", To: link("cron")}, {Name: "Groups", To: link("groups")}}
	if v.scope.All {
		f.Pages = append(f.Pages, navigation{Name: "Locks", To: link("locks")}, navigation{Name: "Doctor", To: link("doctor")}, navigation{Name: "Redis", To: link("redis")})
	}
	if dead > 0 {
		f.Pages[1].Note = commas(dead) + " dead"
	}
	for i := range f.Pages {
		f.Pages[i].Here = f.Pages[i].Name == a.cur
	}
	return f
}
