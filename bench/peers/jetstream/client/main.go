// A client of NATS JetStream with the loads of bench/peers/clients/kafka_client.py: it takes a load
// in JSON, warms up, prints a line, waits for a line, runs the load, prints its figures in JSON.
// A partition is a stream of its own. It sleeps between records.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
)

type load struct {
	Load          string  `json:"load"`
	Bootstrap     string  `json:"bootstrap"`
	Log           string  `json:"log"`
	Partitions    int     `json:"partitions"`
	Replicas      int     `json:"replicas"`
	RecordBytes   int     `json:"record_bytes"`
	Rate          int     `json:"rate"`
	Seconds       float64 `json:"seconds"`
	WarmS         float64 `json:"warm_s"`
	Megabytes     int     `json:"megabytes"`
	WarmMegabytes int     `json:"warm_megabytes"`
}

type figures map[string]float64

const limit = 240 * time.Second

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (l load) subject(partition int) string { return fmt.Sprintf("%s.%d", l.Log, partition) }

func (l load) stream(partition int) string { return fmt.Sprintf("%s-%d", l.Log, partition) }

// sleepUntil sleeps by the system call: the runtime's timers round up to a millisecond.
func sleepUntil(due time.Time) {
	if left := time.Until(due); left > 0 {
		pause := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&pause, nil)
	}
}

// makeStreams waits until every stream has a leader and all of its replicas are current.
func makeStreams(js nats.JetStreamContext, l load) {
	until := time.Now().Add(limit)
	for partition := 0; partition < l.Partitions; partition++ {
		config := nats.StreamConfig{
			Name:     l.stream(partition),
			Subjects: []string{l.subject(partition)},
			Replicas: l.Replicas,
			Storage:  nats.FileStorage,
		}
		_, err := js.AddStream(&config)
		for err != nil && time.Now().Before(until) {
			time.Sleep(50 * time.Millisecond)
			_, err = js.AddStream(&config)
		}
		must(err)
		for !current(js, config.Name) && time.Now().Before(until) {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func current(js nats.JetStreamContext, name string) bool {
	info, err := js.StreamInfo(name)
	if err != nil || info.Cluster == nil || info.Cluster.Leader == "" {
		return false
	}
	for _, replica := range info.Cluster.Replicas {
		if !replica.Current {
			return false
		}
	}
	return true
}

func acks(js nats.JetStreamContext, l load, seconds float64) figures {
	var lock sync.Mutex
	var waiting sync.WaitGroup
	var failed int64
	took := []float64{}
	value := make([]byte, l.RecordBytes)
	count := int(seconds * float64(l.Rate))
	began := time.Now()
	for number := 0; number < count; number++ {
		sleepUntil(began.Add(time.Duration(number) * time.Second / time.Duration(l.Rate)))
		sent := time.Now()
		future, err := js.PublishAsync(l.subject(rand.Intn(l.Partitions)), value)
		if err != nil {
			failed++
			continue
		}
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			select {
			case <-future.Ok():
				ms := time.Since(sent).Seconds() * 1e3
				lock.Lock()
				took = append(took, ms)
				lock.Unlock()
			case <-future.Err():
				atomic.AddInt64(&failed, 1)
			}
		}()
	}
	waiting.Wait()
	sort.Float64s(took)
	at := func(quantile float64) float64 { return took[int(float64(len(took))*quantile)] }
	return figures{"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999),
		"records": float64(len(took)), "failed": float64(failed)}
}

func write(js nats.JetStreamContext, l load, megabytes int) figures {
	value := make([]byte, l.RecordBytes)
	count := megabytes * 1e6 / l.RecordBytes
	failed := 0
	began := time.Now()
	for number := 0; number < count; number++ {
		if _, err := js.PublishAsync(l.subject(number%l.Partitions), value); err != nil {
			failed++
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(limit):
		failed += js.PublishAsyncPending()
	}
	seconds := time.Since(began).Seconds()
	written := float64((count-failed)*l.RecordBytes) / 1e6
	return figures{"mb_per_s": written / seconds, "megabytes": written,
		"records": float64(count - failed), "failed": float64(failed)}
}

// read reads each stream from its start by an ordered consumer.
func read(js nats.JetStreamContext, l load) figures {
	var records, size, first int64
	var wanted uint64
	for partition := 0; partition < l.Partitions; partition++ {
		info, err := js.StreamInfo(l.stream(partition))
		must(err)
		wanted += info.State.Msgs
	}
	done := make(chan bool)
	began := time.Now()
	for partition := 0; partition < l.Partitions; partition++ {
		_, err := js.Subscribe(l.subject(partition), func(found *nats.Msg) {
			atomic.CompareAndSwapInt64(&first, 0, int64(time.Since(began)))
			atomic.AddInt64(&size, int64(len(found.Data)))
			if uint64(atomic.AddInt64(&records, 1)) == wanted {
				close(done)
			}
		}, nats.OrderedConsumer())
		must(err)
	}
	select {
	case <-done:
	case <-time.After(limit / 2):
	}
	seconds := time.Since(began).Seconds()
	megabytes := float64(size) / 1e6
	return figures{"mb_per_s": megabytes / seconds, "first_s": float64(first) / 1e9,
		"megabytes": megabytes, "records": float64(records),
		"failed": float64(wanted) - float64(records)}
}

// survive writes to each stream every 10 ms, and returns the longest gap between acknowledgements.
func survive(js nats.JetStreamContext, l load) figures {
	var waiting sync.WaitGroup
	gaps := make([]float64, l.Partitions)
	until := time.Now().Add(time.Duration(l.Seconds * float64(time.Second)))
	value := make([]byte, 100)
	for partition := 0; partition < l.Partitions; partition++ {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			var last time.Time
			for time.Now().Before(until) {
				_, err := js.Publish(l.subject(partition), value, nats.AckWait(300*time.Millisecond))
				if err == nil {
					now := time.Now()
					if !last.IsZero() && now.Sub(last).Seconds() > gaps[partition] {
						gaps[partition] = now.Sub(last).Seconds()
					}
					last = now
				}
				time.Sleep(10 * time.Millisecond)
			}
			if gap := time.Since(last).Seconds(); gap > gaps[partition] {
				gaps[partition] = gap
			}
		}()
	}
	waiting.Wait()
	sort.Float64s(gaps)
	return figures{"worst_s": gaps[len(gaps)-1], "median_s": gaps[len(gaps)/2], "failed": 0}
}

func main() {
	var l load
	must(json.Unmarshal([]byte(os.Args[1]), &l))
	time.AfterFunc(limit, func() { must(fmt.Errorf("not done after %s", limit)) })
	connection, err := nats.Connect(l.Bootstrap, nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true), nats.ReconnectWait(20*time.Millisecond))
	must(err)
	js, err := connection.JetStream(nats.PublishAsyncMaxPending(4000))
	must(err)
	run := func() figures { return figures{} }
	switch l.Load {
	case "make":
		makeStreams(js, l)
	case "first":
		_, err := js.Publish(l.subject(0), []byte("x"))
		must(err)
	case "acks":
		acks(js, l, l.WarmS)
		run = func() figures { return acks(js, l, l.Seconds) }
	case "write":
		write(js, l, l.WarmMegabytes)
		run = func() figures { return write(js, l, l.Megabytes) }
	case "read":
		run = func() figures { return read(js, l) }
	case "survive":
		run = func() figures { return survive(js, l) }
	}
	fmt.Println()
	in := bufio.NewReader(os.Stdin)
	_, _ = in.ReadString('\n')
	must(json.NewEncoder(os.Stdout).Encode(run()))
	_, _ = in.ReadString('\n')
}
