import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** CuratorHolder SERVER PATH: stands in line, says "waiting" and "locked", and gives it back when terminated. */
class CuratorHolder {
  public static void main(String[] args) throws Exception {
    CuratorFramework curator = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100));
    curator.start();
    InterProcessMutex lock = new InterProcessMutex(curator, args[1]);
    CountDownLatch ending = new CountDownLatch(1);
    CountDownLatch ended = new CountDownLatch(1);
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  ending.countDown();
                  await(ended);
                }));
    if (!lock.acquire(0, TimeUnit.MILLISECONDS)) {
      System.out.println("waiting");
      lock.acquire();
    }
    System.out.println("locked");
    ending.await();
    // Only the thread that has it may give it back.
    lock.release();
    ended.countDown();
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }
}
