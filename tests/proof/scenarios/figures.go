package scenarios

import (
	"errors"
	"fmt"
	"strings"
)

// figures are the results of a play.
type figures struct {
	grants      int // grants whose tokens were checked
	twoHolders  int // how often two clients held the lock at once
	wantTwo     int // how often that had to happen
	overwritten int // late writes that the resource without a check accepted
	refused     int // late writes that the resource with a check refused
	wantLate    int // late writes that were arranged
}

// verdict returns an error unless everything happened that had to.
func (f *figures) verdict() error {
	var errs []error
	if f.twoHolders != f.wantTwo {
		errs = append(errs, fmt.Errorf("two holders at once were seen %d times, not %d", f.twoHolders, f.wantTwo))
	}
	if f.overwritten != f.wantLate {
		errs = append(errs, fmt.Errorf("of %d late writes, %d reached the resource without a check: nothing was shown", f.wantLate, f.overwritten))
	}
	if f.refused != f.wantLate {
		errs = append(errs, fmt.Errorf("of %d late writes, %d were refused by the resource that checks tokens", f.wantLate, f.refused))
	}
	return errors.Join(errs...)
}

func (f figures) String() string {
	return fmt.Sprintf("grants=%d two-holders=%d/%d overwritten=%d/%d refused=%d/%d",
		f.grants, f.twoHolders, f.wantTwo, f.overwritten, f.wantLate, f.refused, f.wantLate)
}

// wrapped formats sentences as a paragraph.
func wrapped(sentences []string) string {
	const width = 92
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(strings.Join(sentences, " ")) {
		switch {
		case column == 0:
			b.WriteString("  ")
		case column+len(word) > width:
			b.WriteString("\n  ")
			column = 0
		}
		b.WriteString(" " + word)
		column += len(word) + 1
	}
	return b.String()
}
