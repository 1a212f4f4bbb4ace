package facts

import "strings"

// Fields are what a session holds for a delivery: what the hash inflight:<session> has for the ID of a job. docs/wire.md has the form.
type Fields struct {
	// Token is the fencing token. It is "" if the session holds none, or what can't be read; then the other fields are "", too.
	Token string
	// Flags has an s and the number of crashes of a suspect, then a c of a job that was cancelled while it runs.
	Flags string
	// Group is the key of the group that the job holds.
	Group string
	// Key is the unique key that the end of the delivery frees.
	Key string
	// Links are those of the job.
	Links string
}

// linksMark stands before the links.
const linksMark = "\x02"

// FieldsOf reads what a session holds. delivery_fields, in the chapter sessions of the scripts, reads the same.
func FieldsOf(value string) (f Fields) {
	token, rest, _ := strings.Cut(value, " ")
	if token == "" || strings.Trim(token, "0123456789") != "" {
		return f
	}
	f.Token = token
	f.Flags, rest, _ = strings.Cut(rest, " ")
	f.Group, rest, _ = strings.Cut(rest, " ")
	f.Key, f.Links, _ = strings.Cut(rest, linksMark)
	return f
}

// String returns what a session holds that has these fields.
func (f Fields) String() string {
	switch {
	case f.Links != "":
		return f.Token + " " + f.Flags + " " + f.Group + " " + f.Key + linksMark + f.Links
	case f.Key != "":
		return f.Token + " " + f.Flags + " " + f.Group + " " + f.Key
	case f.Group != "":
		return f.Token + " " + f.Flags + " " + f.Group
	case f.Flags != "":
		return f.Token + " " + f.Flags
	}
	return f.Token
}

// Flagged reports whether the job was cancelled while it runs.
func (f Fields) Flagged() bool { return strings.Contains(f.Flags, "c") }

// Suspect returns how many crashes the flag of a suspect says, and whether there is one.
func (f Fields) Suspect() (crashes string, ok bool) {
	return strings.CutPrefix(strings.TrimSuffix(f.Flags, "c"), "s")
}
