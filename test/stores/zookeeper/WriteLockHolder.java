import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

/** WriteLockHolder SERVER PATH: stands in line, says "waiting" and "locked", and gives it back when terminated. */
class WriteLockHolder {
  public static void main(String[] args) throws Exception {
    CountDownLatch connected = new CountDownLatch(1);
    ZooKeeper zookeeper = new ZooKeeper(args[0], 20_000, event -> connected.countDown());
    connected.await();
    WriteLock lock = new WriteLock(zookeeper, args[1], ZooDefs.Ids.OPEN_ACL_UNSAFE);
    lock.setLockListener(
        new LockListener() {
          @Override
          public void lockAcquired() {
            System.out.println("locked");
          }

          @Override
          public void lockReleased() {}
        });
    Runtime.getRuntime().addShutdownHook(new Thread(lock::unlock));
    if (!lock.lock()) System.out.println("waiting");
    Thread.currentThread().join();
  }
}
