// A client of tests/integration/chaos.py: `producer` or `consumer`, what frame.py says of its
// arguments, one JSON object a line on standard output. It stops when its standard input ends.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

public class Stayer {
    static final int TEXT_MIN = 10;
    static final int TEXT_MAX = 300;
    static final long BETWEEN_MS = 7;
    static final int COMMIT_EACH = 50;
    static volatile boolean stopped = false;

    static synchronized void say(String json) {
        System.out.println(json);
    }

    static void say(String name, Throwable error) {
        String text = error.toString().replaceAll("[^A-Za-z0-9 .,:;_()=-]", " ");
        say("{\"" + name + "\":\"" + text + "\"}");
    }

    static Properties properties(String[] words, int from) {
        Properties made = new Properties();
        made.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        made.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        made.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        made.put("value.deserializer",
            "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        for (int index = from; index < words.length; index++) {
            String[] both = words[index].split("=", 2);
            made.put(both[0], both[1]);
        }
        return made;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    // TOPIC PARTITIONS KEYS SEED CONFIG...
    static void produce(String[] words) throws Exception {
        String topic = words[1];
        int partitions = Integer.parseInt(words[2]);
        int keys = Integer.parseInt(words[3]);
        Random random = new Random(Long.parseLong(words[4]));
        AtomicInteger left = new AtomicInteger();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties(words, 5));
        for (int number = 0; !stopped; number++) {
            int key = keys > 0 ? random.nextInt(keys) : number;
            int length = TEXT_MIN + random.nextInt(TEXT_MAX - TEXT_MIN);
            byte[] value = bytes(number + ":" + ".".repeat(length));
            byte[] name = keys > 0 ? bytes("" + key) : null;
            String said = "" + number + "," + (keys > 0 ? "\"" + key + "\"" : "null");
            left.incrementAndGet();
            try {
                producer.send(
                    new ProducerRecord<>(topic, key % partitions, name, value),
                    (metadata, error) -> {
                        left.decrementAndGet();
                        if (error != null) {
                            say("failed", error);
                        } else {
                            String offset = metadata.hasOffset() ? "" + metadata.offset() : "null";
                            say("{\"acked\":[" + metadata.partition() + "," + offset + "," + said
                                + "]}");
                        }
                    });
            } catch (RuntimeException error) {
                say("failed", error);
            }
            Thread.sleep(BETWEEN_MS);
        }
        Thread flush = new Thread(producer::flush);
        flush.setDaemon(true);
        flush.start();
        flush.join(60_000);
        say("{\"left\":" + left.get() + "}");
    }

    // TOPIC CONFIG...
    static void consume(String[] words) {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties(words, 2));
        consumer.subscribe(List.of(words[1]));
        while (!stopped) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                say("{\"read\":[" + record.partition() + "," + record.offset() + "]}");
                if (record.offset() % COMMIT_EACH == 0) {
                    TopicPartition place = new TopicPartition(words[1], record.partition());
                    OffsetAndMetadata next = new OffsetAndMetadata(
                        record.offset() + 1, record.leaderEpoch(), "");
                    try {
                        consumer.commitSync(Map.of(place, next));
                    } catch (CommitFailedException | RebalanceInProgressException error) {
                        say("refused", error);
                    } catch (RuntimeException error) {
                        say("failed", error);
                    }
                }
            }
        }
        consumer.close();
    }

    public static void main(String[] words) throws Exception {
        Thread end = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException gone) { }
            stopped = true;
        });
        end.setDaemon(true);
        end.start();
        try {
            if (words[0].equals("producer")) {
                produce(words);
            } else {
                consume(words);
            }
        } catch (Throwable error) {
            error.printStackTrace();
            say("failed", error);
            System.out.flush();
            Runtime.getRuntime().halt(1);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
