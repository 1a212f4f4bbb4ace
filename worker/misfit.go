package worker

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// maxDepth limits the depth of the search for a misfit: each level decodes everything below it once more.
const maxDepth = 32

// A misfit is the place where a payload doesn't fit a Go type. The search for it decodes the parts of the payload one after
// the other. It starts only after the whole payload did not decode.
type misfit struct {
	strict  bool
	path    string       // path in the payload, made of names that the Go type has; never a map's key or a value
	field   string       // the Go field at that path, such as Welcome.UserID; "" at the top
	want    reflect.Type // the type of that field
	got     string       // the kind of JSON value found there
	unknown string       // the field of the payload that want doesn't have
	depth   int          // number of levels searched
}

// misfitError returns an error that says where a payload doesn't fit t: the JSON path, the Go field and its type. The error holds
// nothing else from the payload, except the name of an unknown field if it looks like a name.
func misfitError(t reflect.Type, payload []byte, strict bool) error {
	if len(payload) == 0 {
		return errors.New("decode the job's arguments: the payload is empty; it must be JSON")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(payload, &whole); err != nil {
		at := int64(0)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = syntax.Offset
		}
		return fmt.Errorf("decode the job's arguments: the payload is no valid JSON at byte %d", at)
	}
	m := misfit{strict: strict}
	m.find(t, payload)
	where := "the payload"
	if m.path != "" {
		where = fmt.Sprintf("field %q", strings.TrimPrefix(m.path, "."))
		if m.field != "" {
			where += " (in Go " + m.field + ")"
		}
	}
	switch {
	case m.unknown != "":
		return fmt.Errorf("decode the job's arguments: %s has %s, which Go type %v doesn't have", where, m.unknown, m.want)
	case decodesItself(m.want):
		return fmt.Errorf("decode the job's arguments: %s must be a Go %v, whose own decoder refused the JSON %s", where, m.want, m.got)
	}
	return fmt.Errorf("decode the job's arguments: %s must fit in a Go %v, and is a JSON %s", where, m.want, m.got)
}

// find searches raw, which doesn't decode into a t, for the place. At maxDepth it stops, and the place is the value that it has reached.
func (m *misfit) find(t reflect.Type, raw []byte) {
	for t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	m.want, m.got = t, jsonKind(raw)
	if m.depth++; decodesItself(t) || m.depth > maxDepth {
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		m.findMember(t, raw)
	case reflect.Slice, reflect.Array:
		var items []json.RawMessage
		_ = json.Unmarshal(raw, &items) // if this fails, the mistake is here
		for i, item := range items {
			if !m.fits(t.Elem(), item) {
				m.path += fmt.Sprintf("[%d]", i)
				m.find(t.Elem(), item)
				return
			}
		}
	case reflect.Map:
		for _, value := range membersOf(raw) {
			if !m.fits(t.Elem(), value) {
				m.path += "[...]"
				m.find(t.Elem(), value)
				return
			}
		}
	}
}

// findMember searches an object for the place. It decodes each member in an object of its own. So the decoder's rules about names,
// tags and embedded structs apply.
func (m *misfit) findMember(t reflect.Type, raw []byte) {
	members := membersOf(raw)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		alone, err := json.Marshal(map[string]json.RawMessage{name: members[name]})
		if err != nil || m.fits(t, alone) {
			continue
		}
		field, ok := fieldOf(t, name)
		if !ok {
			m.unknown = "a field"
			if isName(name) {
				m.unknown = fmt.Sprintf("a field %q", name)
			}
			return
		}
		m.path += "." + nameOf(field)
		m.field = t.Name() + "." + field.Name
		m.find(field.Type, members[name])
		return
	}
}

func (m *misfit) fits(t reflect.Type, raw []byte) bool {
	return unmarshal(raw, reflect.New(t).Interface(), m.strict) == nil
}

// membersOf returns the members of an object, or none if raw is something else.
func membersOf(raw []byte) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members)
	return members
}

// fieldOf returns the Go field that package json decodes a member of that name into.
func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	var folded reflect.StructField
	found := false
	for _, f := range reflect.VisibleFields(t) {
		if !f.IsExported() || f.Tag.Get("json") == "-" {
			continue
		}
		switch own := nameOf(f); {
		case own == name:
			return f, true
		case !found && strings.EqualFold(own, name):
			folded, found = f, true
		}
	}
	return folded, found
}

// nameOf returns a field's name in JSON.
func nameOf(f reflect.StructField) string {
	if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
		return name
	}
	return f.Name
}

// isName reports whether a member's name looks like that of a field: short, of letters, digits, _ and -.
func isName(s string) bool {
	return len(s) <= 40 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

var (
	jsonDecoder = reflect.TypeFor[json.Unmarshaler]()
	textDecoder = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decodesItself reports whether t has a decoder of its own.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonDecoder) || p.Implements(textDecoder)
}

// jsonKind returns what kind of JSON value this is.
func jsonKind(raw []byte) string {
	for _, b := range raw {
		switch b {
		case ' ', '\t', '\r', '\n':
			continue
		case '"':
			return "string"
		case '{':
			return "object"
		case '[':
			return "array"
		case 't', 'f':
			return "boolean"
		case 'n':
			return "null"
		}
		return "number"
	}
	return "value"
}
