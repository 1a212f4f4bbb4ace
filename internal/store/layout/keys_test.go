package layout

import (
	"errors"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
)

func TestValidateName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "a:b/c.d", `*?[]\`, strings.Repeat("x", MaxName)} {
		if err := ValidateQueue(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", " ", "a b", "a{b", "a}b", "a\x00", "a\nb", "ä", "\x7f", strings.Repeat("x", MaxName+1)} {
		for _, err := range []error{ValidateQueue(name), ValidateID(name), ValidateKind(name)} {
			if !errors.Is(err, signalbox.ErrInvalid) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

// What can't begin or end a key of a namespace is refused, and a namespace that isn't named is the default one.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{"": true, DefaultNamespace: true, "a.b": true, "a:b": false, "a b": false, "a}": false} {
		if err := ValidateNamespace(name); (err == nil) != valid || err != nil && !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if of := KeysOf("", "q"); of.Jobs != KeysOf(DefaultNamespace, "q").Jobs || of.Jobs == KeysOf("other", "q").Jobs || of.Registry == KeysOf("other", "q").Registry {
		t.Errorf("the keys are %+v", of)
	}
}
