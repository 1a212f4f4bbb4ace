package fencesql

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock/fence"
)

// envChild has what a child process does: dialect, isolation level, where it dies, when the effect was born, the database.
const envChild = "SIGNALBOX_FENCE_CHILD"

// The places where a delivery dies. The last one lives.
var deaths = []string{"before", "inside", "after", "inside", "never"}

// A job is delivered five times. Each delivery is a process, which is killed by SIGKILL before its transaction, in it, after it, and once more in
// it. The last one ends well. The effect is had once.
func TestOnceUnderKills(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, _ *fence.DB) {
		level := sql.LevelDefault
		if d.dialect != fence.SQLite {
			switch t.Name()[strings.LastIndex(t.Name(), "/")+1:] {
			case "ReadCommitted":
				level = sql.LevelReadCommitted
			case "RepeatableRead":
				level = sql.LevelRepeatableRead
			case "Serializable":
				level = sql.LevelSerializable
			default:
				t.Fatal(t.Name())
			}
		}
		born := time.Now().UnixMicro()
		want := []int64{0, 0, 1, 1, 1}
		for i, death := range deaths {
			var out bytes.Buffer
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s %d %s", envChild, d.dialect, level, death, born, d.dsn))
			cmd.Stdout, cmd.Stderr = &out, &out
			ended, err := servertest.Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(patience):
				_ = cmd.Process.Kill()
				<-ended
				t.Fatalf("delivery %d hangs: %s", i+1, &out)
			}
			if code := cmd.ProcessState.ExitCode(); (code == 0) != (death == "never") || code > 0 {
				t.Fatalf("delivery %d, which dies %s, ended with %d: %s", i+1, death, code, &out)
			}
			if n := d.had(t, "e"); n != want[i] {
				t.Errorf("after delivery %d, which dies %s, the effect was had %d times, want %d", i+1, death, n, want[i])
			}
		}
	})
}

// runChild is one delivery.
func runChild() {
	words := strings.SplitN(os.Getenv(envChild), " ", 5)
	number := func(i int) int64 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	d := &database{dialect: fence.Dialect(number(0)), dsn: words[4]}
	driver := map[fence.Dialect]string{fence.PostgreSQL: "pgx", fence.MariaDB: "mysql", fence.SQLite: "sqlite"}[d.dialect]
	pool, err := sql.Open(driver, d.dsn)
	if err != nil {
		panic(err)
	}
	db, err := fence.New(pool, d.dialect, fence.Config{Isolation: sql.IsolationLevel(number(1))})
	if err != nil {
		panic(err)
	}
	dies := func(where string) {
		if words[2] == where {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			if err != nil {
				panic(err)
			}
			select {}
		}
	}
	ctx := fence.WithEffect(context.Background(), fence.Effect{Key: "e", Born: time.UnixMicro(number(3))})
	dies("before")
	err = db.InTx(ctx, func(tx *fence.Tx) error {
		err := tx.Once(ctx, "s", d.earn(ctx, tx, "e"))
		if err == nil {
			dies("inside")
		}
		return err
	})
	if err != nil {
		panic(err)
	}
	dies("after")
	if err := pool.Close(); err != nil {
		panic(err)
	}
	os.Exit(0)
}
