import java.lang.reflect.Field;
import org.apache.inlong.tubemq.server.common.statusdef.StepStatus;
import org.apache.inlong.tubemq.server.tools.MasterStartup;

/**
 * The real master, with its two fixed waits cut short: after a broker comes online the master stays 30 s
 * in wait_sub and 5 s in wait_pub. They are constants of the enum StepStatus, which no key of master.ini
 * reaches: stepChgWaitPeriodMs is read and used by nothing. Nothing else is changed.
 * -Dtubemq.step.ms=N caps both waits at N ms.
 */
public final class FastMaster {
    public static void main(String[] args) throws Exception {
        long cap = Long.getLong("tubemq.step.ms", 0L);
        for (String name : new String[] {"normalDelayDurIdnMs", "shortDelayDurIdnMs"}) {
            Field field = StepStatus.class.getDeclaredField(name);
            field.setAccessible(true);
            for (StepStatus status : StepStatus.values()) {
                if (field.getLong(status) > cap) {
                    field.setLong(status, cap);
                }
            }
        }
        MasterStartup.main(args);
    }
}
