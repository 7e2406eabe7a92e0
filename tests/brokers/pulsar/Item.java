import java.util.List;
import java.util.Map;

/** A value with a schema. Python's side has the same in tests/support/pulsar/java.py. */
public final class Item {
    public String name;
    public Long count;
    public Double price;
    public Boolean sold;
    public byte[] raw;
    public List<String> tags;
    public Map<String, Long> stock;
    public Maker maker;
    public Colour colour;

    public enum Colour { RED, BLUE }

    public static final class Maker {
        public String town;
    }
}
