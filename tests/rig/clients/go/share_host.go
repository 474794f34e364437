// Share consumers of franz-go, driven by the lines of share_lines.py: open, consume, stop and close.
//
// Every poll is worked on at once, acknowledged and flushed, so that each answer can be told of each record.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

const pollTime = 100 * time.Millisecond
const flushTime = 20 * time.Second

var out = struct {
	sync.Mutex
	*bufio.Writer
}{Writer: bufio.NewWriter(os.Stdout)}

func say(fields ...any) {
	out.Lock()
	defer out.Unlock()
	for at, field := range fields {
		if at > 0 {
			out.WriteByte('\t')
		}
		fmt.Fprint(out, field)
	}
	out.WriteByte('\n')
	out.Flush()
}

// The clock that all processes of a machine share (Python's time.monotonic_ns).
func monotonicNs() int64 {
	var at syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}

func text(data []byte) string {
	if data == nil {
		return "-"
	}
	return hex.EncodeToString(data)
}

type place struct {
	topic     string
	partition int32
}

type member struct {
	name     string
	client   *kgo.Client
	commands chan []string
	stop     chan struct{}
	sync.Mutex
	refused map[place]error // by the answers of the flush under way
}

func (m *member) run() {
	for command := range m.commands {
		if err := m.act(command); err != nil {
			say(m.name, "failed", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			say(m.name, "done")
		}
		if command[0] == "close" {
			return
		}
	}
}

func (m *member) act(command []string) error {
	switch command[0] {
	case "open":
		return m.open(command[1], strings.Split(command[2], ","), command[3:])
	case "consume":
		return m.consume()
	case "close":
		m.client.Close()
		return nil
	}
	return fmt.Errorf("%s is not implemented", command[0])
}

func (m *member) open(group string, topics []string, properties []string) error {
	seeds, id := "", ""
	for _, property := range properties {
		name, value, _ := strings.Cut(property, "=")
		switch name {
		case "bootstrap.servers":
			seeds = value
		case "client.id":
			id = value
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(seeds, ",")...),
		kgo.ClientID(id),
		kgo.ShareGroup(group),
		kgo.ConsumeTopics(topics...),
		kgo.ShareAckCallback(m.answered),
	)
	m.client = client
	return err
}

func (m *member) answered(_ *kgo.Client, results kgo.ShareAckResults) {
	m.Lock()
	defer m.Unlock()
	for _, result := range results {
		if result.Err != nil {
			m.refused[place{result.Topic, result.Partition}] = result.Err
		}
	}
}

func (m *member) consume() error {
	for {
		select {
		case <-m.stop:
			return nil
		default:
			m.poll()
		}
	}
}

func (m *member) poll() {
	ctx, cancel := context.WithTimeout(context.Background(), pollTime)
	defer cancel()
	fetches := m.client.PollFetches(ctx)
	now := monotonicNs()
	records := fetches.Records()
	if len(records) == 0 {
		return
	}
	for _, it := range records {
		say(m.name, "record", now, it.Topic, it.Partition, it.Offset, "-",
			it.Timestamp.UnixMilli(), text(it.Key), text(it.Value), "")
	}
	m.client.MarkAcks(kgo.AckAccept, records...)
	m.flush(records)
}

// An answer that does not come, or that speaks of another partition, confirms nothing.
func (m *member) flush(records []*kgo.Record) {
	m.Lock()
	m.refused = map[place]error{}
	m.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	failed := m.client.FlushAcks(ctx)
	now := monotonicNs()
	m.Lock()
	defer m.Unlock()
	for _, it := range records {
		answer := "OK"
		if err := m.refused[place{it.Topic, it.Partition}]; err != nil {
			answer = err.Error()
		} else if failed != nil {
			answer = failed.Error()
		}
		say(m.name, "acked", now, it.Topic, it.Partition, it.Offset, answer)
	}
}

func main() {
	members := map[string]*member{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		name, command := fields[0], fields[1:]
		if members[name] == nil {
			members[name] = &member{
				name: name, commands: make(chan []string, 10), stop: make(chan struct{}, 1), refused: map[place]error{},
			}
			go members[name].run()
		}
		if command[0] == "stop" {
			members[name].stop <- struct{}{}
		} else {
			members[name].commands <- command
		}
	}
}
