// A client made of sarama: writes lines, or reads a topic from its beginning until it has seen as
// many as it is told.  Called by tests/conformance/test_tls_clients.py, with the files of a User's
// Secret.  Its outcome is its exit code; what it read it prints.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

var (
	servers   = flag.String("servers", "", "bootstrap servers, with commas between them")
	topic     = flag.String("topic", "", "")
	authority = flag.String("ca", "", "whom to believe (PEM)")
	chain     = flag.String("cert", "", "what to show (PEM); none: nothing")
	key       = flag.String("key", "", "its key (PEM)")
	version   = flag.String("tls", "1.3", "the only version of TLS to speak")
	count     = flag.Int("read", 0, "records to read; 0: write lines of stdin")
)

func main() {
	flag.Parse()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = tlsConfig()
	config.Metadata.Retry.Max = 0
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	if *count > 0 {
		read(config)
	} else {
		write(config)
	}
}

func tlsConfig() *tls.Config {
	versions := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
	pem, err := os.ReadFile(*authority)
	check(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		log.Fatal("no authority")
	}
	found := &tls.Config{RootCAs: pool, MinVersion: versions[*version], MaxVersion: versions[*version]}
	if *chain != "" {
		pair, err := tls.LoadX509KeyPair(*chain, *key)
		check(err)
		found.Certificates = []tls.Certificate{pair}
	}
	return found
}

func write(config *sarama.Config) {
	producer, err := sarama.NewSyncProducer(strings.Split(*servers, ","), config)
	check(err)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		message := &sarama.ProducerMessage{Topic: *topic, Value: sarama.StringEncoder(lines.Text())}
		_, _, err := producer.SendMessage(message)
		check(err)
	}
	check(lines.Err())
	check(producer.Close())
}

func read(config *sarama.Config) {
	consumer, err := sarama.NewConsumer(strings.Split(*servers, ","), config)
	check(err)
	partitions, err := consumer.Partitions(*topic)
	check(err)
	found := make(chan string)
	for _, partition := range partitions {
		one, err := consumer.ConsumePartition(*topic, partition, sarama.OffsetOldest)
		check(err)
		go func() {
			for message := range one.Messages() {
				found <- string(message.Value)
			}
		}()
	}
	late := time.After(90 * time.Second)
	for left := *count; left > 0; left-- {
		select {
		case value := <-found:
			fmt.Println(value)
		case <-late:
			log.Fatalf("%d records are missing", left)
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
