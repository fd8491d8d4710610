package etcdtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
)

// variable tells the test's program that it is a member, and which.
const variable = "ETCDTEST_MEMBER"

// Orders to a member's process, each a line: a word and the id of a peer in
// hexadecimal. The member repeats a line when it has carried it out.
const (
	orderCut  = "cut %x\n"
	orderMend = "mend %x\n"
	tellReady = "ready %x\n"
)

// Main does nothing in a test. In a process that WithProcesses or WithProgram
// started it is the member, and does not return.
func Main() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, "etcd member:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve runs a member until it is told to end by a signal or by the end of its
// input: that comes when the test's process is gone.
func serve(text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("parse %s: %w", variable, err)
	}
	cfg, err := s.config()
	if err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer e.Close()
	orders := make(chan string)
	go func() {
		defer close(orders)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			orders <- in.Text() + "\n"
		}
	}()
	becameReady := e.Server.ReadyNotify()
	for {
		select {
		case <-becameReady:
			becameReady = nil
			fmt.Printf(tellReady, uint64(e.Server.MemberID()))
		case order, ok := <-orders:
			if !ok {
				return nil
			}
			if err := obey(e, order); err != nil {
				return err
			}
			fmt.Print(order)
		case <-end:
			return nil
		case err := <-e.Err():
			return err
		}
	}
}

func obey(e *embed.Etcd, order string) error {
	var id uint64
	if _, err := fmt.Sscanf(order, orderCut, &id); err == nil {
		e.Server.CutPeer(types.ID(id))
		return nil
	}
	if _, err := fmt.Sscanf(order, orderMend, &id); err == nil {
		e.Server.MendPeer(types.ID(id))
		return nil
	}
	return fmt.Errorf("order %q is not known", order)
}

// process is a member as its parent sees it.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	said   chan string   // lines of its output; closed at its end
	exited chan struct{} // closed when it is gone
}

// startProcess starts a member as a program; none is this one.
func startProcess(program string, s settings) (*process, error) {
	if program == "" {
		own, err := os.Executable()
		if err != nil {
			return nil, err
		}
		program = own
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, said: make(chan string, 64), exited: make(chan struct{})}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.said <- lines.Text() + "\n"
		}
		close(p.said)
		_ = cmd.Wait() // it was told to end, or its silence is the error
		close(p.exited)
	}()
	return p, nil
}

// hear waits for the next line.
func (p *process) hear(limit time.Duration) (string, error) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case line, ok := <-p.said:
		if !ok {
			return "", errors.New("its process ended")
		}
		return line, nil
	case <-timeout.C:
		return "", fmt.Errorf("no word after %s", limit)
	}
}

func (p *process) awaitReady(limit time.Duration) (types.ID, error) {
	line, err := p.hear(limit)
	if err != nil {
		return 0, err
	}
	var id uint64
	if _, err := fmt.Sscanf(line, tellReady, &id); err != nil {
		return 0, fmt.Errorf("said %q: %w", line, err)
	}
	return types.ID(id), nil
}

// link has the member mend or cut its connections to a peer.
func (p *process) link(connected bool, peer types.ID) error {
	order := orderCut
	if connected {
		order = orderMend
	}
	order = fmt.Sprintf(order, uint64(peer))
	if _, err := io.WriteString(p.in, order); err != nil {
		return err
	}
	line, err := p.hear(startTimeout)
	if err == nil && line != order {
		err = fmt.Errorf("said %q", line)
	}
	return err
}

// end sends a signal that ends the process, and waits until it is gone: killed,
// where it takes too long. A stopped one goes on for that.
func (p *process) end(with syscall.Signal) {
	_ = p.cmd.Process.Signal(with) // it fails where it is gone
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	timeout := time.NewTimer(endTimeout)
	defer timeout.Stop()
	select {
	case <-p.exited:
	case <-timeout.C:
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	_ = p.in.Close() // its other end is gone
}
