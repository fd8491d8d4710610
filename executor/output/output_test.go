package output_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/executor/output"
	"github.com/leaderd/leaderd/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(run string) output.Key {
	return output.Key{Job: state.JobID{Namespace: "ns", Name: "job"}, Run: state.RunID(run), Attempt: 1}
}

func open(t testing.TB, dir string, opts output.Options) *output.Ring {
	t.Helper()
	r, err := output.Open(dir, opts)
	require.NoError(t, err)
	return r
}

// put writes a whole output.
func put(t testing.TB, r *output.Ring, k output.Key, chunks ...[]byte) {
	t.Helper()
	w, err := r.Create(k)
	require.NoError(t, err)
	for _, c := range chunks {
		n, err := w.Write(c)
		require.NoError(t, err)
		require.Equal(t, len(c), n)
	}
	require.NoError(t, w.Close())
}

func get(t testing.TB, r *output.Ring, k output.Key, offset int64) string {
	t.Helper()
	rd, err := r.Read(k, offset)
	require.NoError(t, err)
	defer func() { require.NoError(t, rd.Close()) }()
	var b strings.Builder
	_, err = rd.CopyTo(t.Context(), &b)
	require.NoError(t, err)
	return b.String()
}

func TestOutputIsAPlainFileThatReopens(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, output.Options{})
	put(t, r, key("a"), []byte("hello "), []byte("world"))
	raw, err := os.ReadFile(filepath.Join(dir, "ns", "job", "a.0.1.out"))
	require.NoError(t, err)
	require.Equal(t, "hello world", string(raw))

	r = open(t, dir, output.Options{})
	require.Equal(t, "hello world", get(t, r, key("a"), 0))
	require.Equal(t, "world", get(t, r, key("a"), 6))
	require.Equal(t, "rld", get(t, r, key("a"), -3))
	require.Empty(t, get(t, r, key("a"), 100))
	_, err = r.Read(key("b"), 0)
	require.ErrorIs(t, err, output.ErrNotFound)
}

func TestNoFileWithoutOutput(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, output.Options{})
	w, err := r.Create(key("a"))
	require.NoError(t, err)
	_, err = w.Write(nil)
	require.NoError(t, err)
	require.Equal(t, output.Usage{Live: 1}, r.Usage())
	require.NoError(t, w.Close())
	require.Equal(t, output.Usage{}, r.Usage())
	require.Nil(t, w.Tail())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestOneWriterAKey(t *testing.T) {
	r := open(t, t.TempDir(), output.Options{})
	w, err := r.Create(key("a"))
	require.NoError(t, err)
	_, err = r.Create(key("a"))
	require.ErrorIs(t, err, output.ErrLive)
	_, err = w.Write([]byte("old"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = w.Write([]byte("x"))
	require.ErrorIs(t, err, output.ErrClosed)

	put(t, r, key("a"), []byte("new"))
	require.Equal(t, "new", get(t, r, key("a"), 0))
	require.Equal(t, 1, r.Usage().Files)
}

// numbered is n lines of 16 bytes, each unlike the others.
func numbered(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%015d\n", i)
	}
	return b.Bytes()
}

func TestHeadAndTailOfALongOutput(t *testing.T) {
	dir := t.TempDir()
	opts := output.Options{MaxRunBytes: 8 << 10}
	r := open(t, dir, opts)
	all := numbered(4096) // 64 KiB
	put(t, r, key("a"), all)
	want := string(all[:4096]) + "\n[leaderd: 57344 bytes of output are not kept]\n" + string(all[len(all)-4096:])
	require.Equal(t, want, get(t, r, key("a"), 0))

	r = open(t, dir, output.Options{}) // other limits now: the file knows its own
	require.Equal(t, want, get(t, r, key("a"), 0))
	require.Equal(t, string(all[len(all)-10:]), get(t, r, key("a"), -10))
	require.FileExists(t, filepath.Join(dir, "ns", "job", "a.0.1.cut"))
}

func TestDamagedTrailerIsAnError(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "ns", "job"), 0o750))
	for _, damage := range []string{
		"", "short", strings.Repeat("x", 100),
		"ldcut\x00\x00\x01" + strings.Repeat("\xff", 24),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ns", "job", "a.0.1.cut"), []byte(damage), 0o640))
		_, err := open(t, dir, output.Options{}).Read(key("a"), 0)
		require.ErrorContains(t, err, "trailer")
	}
}

// Whatever the sizes of the writes: head and tail are exact, before and after a
// restart.
func TestLayoutProperty(t *testing.T) {
	all := numbered(8192)
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		require.NoError(rt, err)
		limit := rapid.Int64Range(8<<10, 12<<10).Draw(rt, "limit")
		r, err := output.Open(dir, output.Options{MaxRunBytes: limit})
		require.NoError(rt, err)
		w, err := r.Create(key("a"))
		require.NoError(rt, err)
		var total int
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 6000), 1, 20).Draw(rt, "writes") {
			n = min(n, len(all)-total)
			_, err := w.Write(all[total : total+n])
			require.NoError(rt, err)
			total += n
		}
		check := func(r *output.Ring) {
			if total == 0 {
				return
			}
			rd, err := r.Read(key("a"), 0)
			require.NoError(rt, err)
			defer func() { require.NoError(rt, rd.Close()) }()
			var seen int64
			for p := make([]byte, 1000); ; {
				at, n, err := rd.Next(context.Background(), p)
				if err != nil {
					break
				}
				require.Equal(rt, all[at:at+int64(n)], p[:n])
				seen += int64(n)
			}
			require.Equal(rt, min(int64(total), limit), seen)
		}
		check(r) // live
		require.Equal(rt, int64(total), w.Bytes())
		require.Equal(rt, int64(total) > limit, w.Truncated())
		require.True(rt, bytes.Equal(all[max(0, total-state.MaxTailBytes):total], w.Tail()))
		require.NoError(rt, w.Close())
		check(r)
		again, err := output.Open(dir, output.Options{})
		require.NoError(rt, err)
		check(again)
	})
}

func TestFollow(t *testing.T) {
	r := open(t, t.TempDir(), output.Options{MaxRunBytes: 8 << 10})
	w, err := r.Create(key("a"))
	require.NoError(t, err)
	rd, err := r.Follow(key("a"), 0) // nothing printed yet
	require.NoError(t, err)
	defer func() { require.NoError(t, rd.Close()) }()

	all := numbered(256) // 4 KiB: within the limit, so nothing may be lost
	done := make(chan error, 1)
	var got bytes.Buffer
	go func() {
		_, err := rd.CopyTo(t.Context(), &got)
		done <- err
	}()
	for i := 0; i < len(all); i += 64 {
		_, err := w.Write(all[i : i+64])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, <-done)
	require.Equal(t, string(all), got.String())
}

func TestFollowEndsWithItsContext(t *testing.T) {
	r := open(t, t.TempDir(), output.Options{})
	w, err := r.Create(key("a"))
	require.NoError(t, err)
	rd, err := r.Follow(key("a"), 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := rd.Next(ctx, make([]byte, 1))
		done <- err
	}()
	cancel(os.ErrDeadlineExceeded)
	require.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
	require.NoError(t, rd.Close())
	require.NoError(t, w.Close())
}

// A slow reader of a fast writer sees gaps and never bytes at a wrong place.
func TestFollowPastTheCircle(t *testing.T) {
	r := open(t, t.TempDir(), output.Options{MaxRunBytes: 8 << 10})
	w, err := r.Create(key("a"))
	require.NoError(t, err)
	rd, err := r.Follow(key("a"), 0)
	require.NoError(t, err)
	all := numbered(1 << 15)
	done := make(chan error, 1)
	go func() {
		defer close(done)
		p := make([]byte, 777)
		var end int64
		for end < int64(len(all)) {
			at, n, err := rd.Next(t.Context(), p)
			if err != nil {
				done <- fmt.Errorf("at %d: %w", at, err)
				return
			}
			if end = at + int64(n); !bytes.Equal(all[at:end], p[:n]) {
				done <- fmt.Errorf("wrong bytes at %d", at)
				return
			}
		}
	}()
	for i := 0; i < len(all); i += 512 {
		_, err := w.Write(all[i : i+512])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, <-done)
	require.NoError(t, rd.Close())
}

func TestOldestAreDeleted(t *testing.T) {
	dir := t.TempDir()
	opts := output.Options{MaxRunBytes: 8 << 10, MaxTotalBytes: 16 << 10}
	r := open(t, dir, opts)
	live, err := r.Create(key("live"))
	require.NoError(t, err)
	_, err = live.Write([]byte("x"))
	require.NoError(t, err)
	for i := range 10 {
		put(t, r, output.Key{Job: state.JobID{Namespace: "n", Name: fmt.Sprint(i)}, Run: "r", Attempt: 1}, []byte("y"))
		require.LessOrEqual(t, r.Usage().Bytes, opts.MaxTotalBytes)
	}
	require.Equal(t, 4, r.Usage().Files)
	require.Equal(t, "x", get(t, r, key("live"), 0), "a live output stays")
	left, err := os.ReadDir(filepath.Join(dir, "n"))
	require.NoError(t, err)
	require.Len(t, left, 3, "no empty directories")
	require.NoError(t, live.Close())

	// After a restart the order is that of the last change.
	now := time.Now()
	for i, age := range []int{2, 3, 1} {
		at := now.Add(-time.Duration(age) * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, "n", left[i].Name(), "r.0.1.out"), at, at))
	}
	opts.MaxFiles = 2
	require.Equal(t, 2, open(t, dir, opts).Usage().Files)
	require.NoDirExists(t, filepath.Join(dir, "n", left[1].Name()))
	require.NoDirExists(t, filepath.Join(dir, "n", left[0].Name()))
	require.FileExists(t, filepath.Join(dir, "n", left[2].Name(), "r.0.1.out"))
}

func TestFullOfLiveOutputs(t *testing.T) {
	r := open(t, t.TempDir(), output.Options{MaxRunBytes: 8 << 10, MaxTotalBytes: 12 << 10})
	a, err := r.Create(key("a"))
	require.NoError(t, err)
	b, err := r.Create(key("b"))
	require.NoError(t, err)
	_, err = a.Write(numbered(512)) // 8 KiB
	require.NoError(t, err)
	_, err = b.Write(numbered(512))
	require.NoError(t, err, "the job never notices")
	require.Equal(t, int64(8<<10), b.Bytes())
	require.Equal(t, numbered(512), b.Tail())
	require.True(t, b.Truncated())
	require.ErrorIs(t, b.Close(), output.ErrFull)
	require.NoError(t, a.Close())
	require.ErrorIs(t, b.Close(), output.ErrFull)
}

func TestDiskTroubleIsCountedAndReported(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, output.Options{})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ns"), nil, 0o600)) // where the directory goes
	w, err := r.Create(key("a"))
	require.NoError(t, err)
	for range 3 {
		_, err = w.Write([]byte("lost"))
		require.NoError(t, err)
	}
	require.Equal(t, int64(12), w.Bytes())
	require.True(t, w.Truncated())
	require.ErrorContains(t, w.Close(), "ns")
}

func TestNamesCannotLeaveTheirPlace(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, output.Options{})
	names := []string{
		"..", ".", "", "a/b", "a%2Fb", "../../etc", "ü", "A", "a",
		strings.Repeat("/", 128), strings.Repeat("/", 127) + ".", strings.Repeat("x", 128),
	}
	for _, n := range names {
		put(t, r, output.Key{Job: state.JobID{Namespace: n, Name: n}, Run: state.RunID(n)}, []byte(n+"!"))
	}
	for _, n := range names {
		require.Equal(t, n+"!", get(t, r, output.Key{Job: state.JobID{Namespace: n, Name: n}, Run: state.RunID(n)}, 0))
	}
	require.Equal(t, len(names), open(t, dir, output.Options{}).Usage().Files)
}

func TestOptionsNameEveryViolation(t *testing.T) {
	err := output.Options{MaxTotalBytes: 1, MaxRunBytes: 1, MaxFiles: -1}.Validate()
	for _, field := range []string{"MaxTotalBytes", "MaxRunBytes", "MaxFiles"} {
		require.ErrorContains(t, err, field)
	}
}

func BenchmarkSmallOutput(b *testing.B) {
	r := open(b, b.TempDir(), output.Options{MaxFiles: 1000})
	line := []byte("one line of output\n")
	b.ReportAllocs()
	for i := range b.N {
		put(b, r, output.Key{Job: state.JobID{Namespace: "ns", Name: "job"}, Run: state.RunID(fmt.Sprint(i))}, line)
	}
}

func BenchmarkNoOutput(b *testing.B) {
	r := open(b, b.TempDir(), output.Options{})
	b.ReportAllocs()
	for range b.N {
		put(b, r, key("a"))
	}
}
