package looks

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"

	"github.com/signalbox-go/signalbox"
)

// A cursor says behind which job of a state Jobs goes on. Each state uses some of its fields.
type cursor struct {
	state   signalbox.State
	score   float64  // of a sorted set
	member  string   // of a sorted set; of ready jobs: the class of the list; of running jobs: the session
	number  int64    // of ready jobs: how many stood before the place in the list; of running jobs: the token
	anchors []anchor // of ready jobs: some that stood before the place, the nearest first; of running jobs: the job alone
}

// An anchor is a job that was seen in a place, and that stays there if its stamp does. The stamp is made of times in the record's header:
// a job that goes through due has another one.
type anchor struct{ id, stamp string }

// cursorVersion is the first byte of a cursor.
const cursorVersion = 1

// cursorEncoding makes texts of cursors. No two texts are the same cursor.
var cursorEncoding = base64.RawURLEncoding.Strict()

// cursorText returns the cursor as a text, which is good for this queue only.
func (q *Looks) cursorText(c cursor) string {
	b := append(make([]byte, 0, 96), cursorVersion)
	b = appendText(b, string(c.state))
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(c.score))
	b = appendText(b, c.member)
	b = binary.BigEndian.AppendUint64(b, uint64(c.number))
	for _, a := range c.anchors {
		b = appendText(appendText(b, a.id), a.stamp)
	}
	b = binary.BigEndian.AppendUint32(b, q.cursorSum(b))
	return cursorEncoding.EncodeToString(b)
}

// appendText appends a text behind its length.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// cursorSum is the checksum of a cursor of this queue.
func (q *Looks) cursorSum(b []byte) uint32 {
	return crc32.ChecksumIEEE(append([]byte(q.Keys.Prefix), b...))
}

// parseCursor reads the text of a cursor for jobs of a state. The error wraps signalbox.ErrInvalid.
func (q *Looks) parseCursor(text string, state signalbox.State) (cursor, error) {
	bad := func(why string) (cursor, error) {
		return cursor{}, fmt.Errorf("%w cursor %.60q: %s; pass the Cursor of a job that was listed with the same queue and state",
			signalbox.ErrInvalid, text, why)
	}
	b, err := cursorEncoding.DecodeString(text)
	if err != nil || len(b) < 5 || b[0] != cursorVersion {
		return bad("it is none")
	}
	b, sum := b[:len(b)-4], b[len(b)-4:]
	if binary.BigEndian.Uint32(sum) != q.cursorSum(b) {
		return bad("it is none of this queue")
	}
	r := fieldReader{b: b[1:]}
	c := cursor{state: signalbox.State(r.text()), score: math.Float64frombits(r.uint64()), member: r.text(), number: int64(r.uint64())}
	for len(r.b) > 0 && !r.short {
		c.anchors = append(c.anchors, anchor{r.text(), r.text()})
	}
	if r.short || math.IsNaN(c.score) {
		return bad("it is none")
	}
	if c.state != state {
		return bad(fmt.Sprintf("it is one of %s jobs, not of %s ones", c.state, state))
	}
	return c, nil
}

// A fieldReader reads the fields of a cursor. short says that there were too few bytes.
type fieldReader struct {
	b     []byte
	short bool
}

func (r *fieldReader) text() string {
	size, n := binary.Uvarint(r.b)
	if n <= 0 || uint64(len(r.b)-n) < size {
		r.short = true
		return ""
	}
	field := r.b[n : n+int(size)]
	r.b = r.b[n+int(size):]
	return string(field)
}

func (r *fieldReader) uint64() uint64 {
	if len(r.b) < 8 {
		r.short = true
		return 0
	}
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// scoreText returns a score as Redis takes it.
func scoreText(score float64) string { return strconv.FormatFloat(score, 'f', -1, 64) }
