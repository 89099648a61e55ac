// The JSON file of class indices.
#include <ddprun/data/file_formats.h>

#include "tests/data/fuzz/reader.h"
#include "tests/fuzz/memory_file.h"

std::vector<std::string> fuzz::seeds() {
  return {R"({"0": "daisy", "1": "roses", "2": "tulips"})",  R"({"0": "\u00e9\n\ud83d\ude00", "1": ""})",
          R"({"0": "a", "00": "b", "-1": "c", "1e0": "d"})", "{}",
          R"([{"0": {"1": [null, true, 1e400, -0.0]}}])",    "{\"0\": \"\xff\", \"10\": \"x\"}"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  const MemoryFile file(bytes);
  return may_refuse(file.path(), [&] {
    const std::vector<std::string> names = ddp::read_class_indices(file.path());
    require(names.size() <= bytes.size() / 6, "every name is in the file");
    const MemoryFile copy("");
    ddp::write_class_indices(copy.path(), names);
    require(ddp::read_class_indices(copy.path()) == names, "what was read is written and read again");
  });
}
