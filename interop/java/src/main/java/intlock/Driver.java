package intlock;

import com.zaxxer.hikari.HikariDataSource;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.Lock;
import javax.sql.DataSource;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockingTaskExecutor;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.integration.jdbc.lock.DefaultLockRepository;
import org.springframework.integration.jdbc.lock.JdbcLockRegistry;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.integration.util.UUIDConverter;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;

/**
 * The real JdbcLockRegistry and the real ShedLock, driven by lines on standard input: a command
 * and its arguments, keys as the hexadecimal digits of their UTF-8. Each is answered by one line:
 * "ok" and what there is to say, or "error", the exception's class and its text.
 */
public final class Driver {
    private final DataSource source;
    private final DefaultLockRepository repository;
    private final JdbcLockRegistry registry;
    private final Map<String, Lock> held = new HashMap<>();
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private LockRegistryLeaderInitiator initiator;

    public static void main(String[] args) throws Exception {
        new Driver().serve();
    }

    private static String env(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? otherwise : value;
    }

    private Driver() throws Exception {
        HikariDataSource pool = new HikariDataSource();
        pool.setJdbcUrl(System.getenv("JDBC_URL"));
        pool.setUsername(System.getenv("JDBC_USER"));
        pool.setPassword(env("JDBC_PASSWORD", ""));
        pool.setMaximumPoolSize(20);
        source = pool;
        Duration ttl = Duration.ofMillis(Long.parseLong(env("TTL_MS", "10000")));
        repository = env("CLIENT_ID", "").isEmpty()
                ? new DefaultLockRepository(source)
                : new DefaultLockRepository(source, System.getenv("CLIENT_ID"));
        repository.setRegion(env("REGION", "DEFAULT"));
        repository.setTransactionManager(new DataSourceTransactionManager(source));
        // Since 7.0 the registry has the time to live, before it the repository.
        try {
            DefaultLockRepository.class.getMethod("setTimeToLive", int.class).invoke(repository, (int) ttl.toMillis());
        } catch (NoSuchMethodException newer) {
            // see below
        }
        repository.afterPropertiesSet();
        repository.afterSingletonsInstantiated();
        repository.start();
        JdbcLockRegistry made;
        try {
            made = JdbcLockRegistry.class
                    .getConstructor(org.springframework.integration.jdbc.lock.LockRepository.class, Duration.class)
                    .newInstance(repository, ttl);
        } catch (NoSuchMethodException older) {
            made = new JdbcLockRegistry(repository);
        }
        registry = made;
        registry.setIdleBetweenTries(Duration.ofMillis(Long.parseLong(env("IDLE_MS", "100"))));
    }

    private void serve() throws Exception {
        out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            try {
                out.println("ok " + execute(words));
            } catch (Throwable t) {
                out.println("error " + t.getClass().getSimpleName() + " " + String.valueOf(t.getMessage()).replaceAll("\\s+", " "));
            }
            if (words[0].equals("close")) {
                System.exit(0);
            }
        }
        System.exit(0);
    }

    private static String key(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    private Lock lock(String hex) {
        return registry.obtain(key(hex));
    }

    private String execute(String[] w) throws Throwable {
        switch (w[0]) {
            case "path":
                return UUIDConverter.getUUID(key(w[1])).toString();
            case "try": {
                Lock lock = lock(w[1]);
                boolean got = lock.tryLock(Long.parseLong(w[2]), TimeUnit.MILLISECONDS);
                if (got) {
                    held.put(w[1], lock);
                }
                return got ? "yes" : "no";
            }
            case "unlock":
                held.remove(w[1]).unlock();
                return "";
            case "renew":
                registry.renewLock(key(w[1]));
                return "";
            case "expired":
                repository.deleteExpired();
                return "";
            case "query":
                return repository.getInsertQuery() + " | " + repository.getUpdateQuery() + " | " + repository.getRenewQuery();
            case "count":
                return count(w[1], w[2], Integer.parseInt(w[3]), Long.parseLong(w[4]));
            case "cycles":
                return cycles(Integer.parseInt(w[1]), Long.parseLong(w[2]));
            case "lead":
                lead(key(w[1]), Long.parseLong(w[2]));
                return "";
            case "leads":
                return String.valueOf(initiator.getContext().isLeader());
            case "resign":
                initiator.stop();
                return "";
            case "shedlock":
                return shedlock(key(w[1]), Long.parseLong(w[2]), Long.parseLong(w[3]), Long.parseLong(w[4]));
            case "close":
                if (initiator != null) {
                    initiator.stop();
                }
                repository.stop();
                repository.close();
                return "";
            default:
                throw new IllegalArgumentException("unknown command " + w[0]);
        }
    }

    /** Adds to an unprotected counter under its lock until the time is up; returns how often. */
    private String count(String hex, String table, int threads, long millis) throws Exception {
        AtomicLong grants = new AtomicLong();
        List<Thread> all = new ArrayList<>();
        List<Throwable> failures = new ArrayList<>();
        long end = System.nanoTime() + millis * 1_000_000;
        for (int i = 0; i < threads; i++) {
            Thread t = new Thread(() -> {
                try (Connection c = source.getConnection(); Statement s = c.createStatement()) {
                    while (System.nanoTime() < end) {
                        Lock lock = lock(hex);
                        if (!lock.tryLock(200, TimeUnit.MILLISECONDS)) {
                            continue;
                        }
                        try {
                            long n;
                            try (ResultSet r = s.executeQuery("SELECT N FROM " + table + " WHERE ID = 1")) {
                                r.next();
                                n = r.getLong(1);
                            }
                            Thread.sleep(1);
                            s.executeUpdate("UPDATE " + table + " SET N = " + (n + 1) + " WHERE ID = 1");
                            grants.incrementAndGet();
                        } finally {
                            lock.unlock();
                        }
                    }
                } catch (Throwable e) {
                    synchronized (failures) {
                        failures.add(e);
                    }
                }
            });
            t.start();
            all.add(t);
        }
        for (Thread t : all) {
            t.join();
        }
        if (!failures.isEmpty()) {
            throw new IllegalStateException(failures.get(0));
        }
        return String.valueOf(grants.get());
    }

    /** Locks and unlocks keys of the threads' own; returns cycles per second, and the median in microseconds. */
    private String cycles(int threads, long millis) throws Exception {
        List<Thread> all = new ArrayList<>();
        List<Long> took = new ArrayList<>();
        long end = System.nanoTime() + millis * 1_000_000;
        for (int i = 0; i < threads; i++) {
            String key = "own-" + i;
            Thread t = new Thread(() -> {
                List<Long> mine = new ArrayList<>();
                Lock lock = registry.obtain(key);
                while (System.nanoTime() < end) {
                    long begin = System.nanoTime();
                    lock.lock();
                    lock.unlock();
                    mine.add((System.nanoTime() - begin) / 1000);
                }
                synchronized (took) {
                    took.addAll(mine);
                }
            });
            t.start();
            all.add(t);
        }
        for (Thread t : all) {
            t.join();
        }
        took.sort(null);
        return took.size() * 1000L / millis + " " + took.get(took.size() / 2);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private void lead(String role, long heartBeatMillis) {
        initiator = new LockRegistryLeaderInitiator((LockRegistry) registry, new DefaultCandidate("java", role) {
            @Override
            public void onGranted(Context context) {
                out.println("event granted");
            }

            @Override
            public void onRevoked(Context context) {
                out.println("event revoked");
            }
        });
        initiator.setHeartBeatMillis(heartBeatMillis);
        initiator.start();
    }

    private String shedlock(String name, long atMostMillis, long atLeastMillis, long workMillis) throws Throwable {
        LockingTaskExecutor executor = new DefaultLockingTaskExecutor(new JdbcTemplateLockProvider(
                JdbcTemplateLockProvider.Configuration.builder()
                        .withJdbcTemplate(new JdbcTemplate(source))
                        .usingDbTime()
                        .build()));
        LockConfiguration configuration = new LockConfiguration(Instant.now(), name,
                Duration.ofMillis(atMostMillis), Duration.ofMillis(atLeastMillis));
        LockingTaskExecutor.TaskResult<String> result = executor.executeWithLock(() -> {
            Thread.sleep(workMillis);
            return "done";
        }, configuration);
        return result.wasExecuted() ? "executed" : "skipped";
    }
}
