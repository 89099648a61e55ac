// What a .pt file is written from: an optimizer's description and further values, two JSON texts from the metadata of
// files. The first line is the one, the rest the other.
#include "checkpoint/pt/pt_writer.h"

#include <stdexcept>

#include "checkpoint/pt/pt_file.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  return {
      R"({"type": "Adam", "param_groups": [{"lr": 0.1, "betas": [0.9, 0.999], "params": ["fc.weight", "fc.bias"]}]})"
      "\n"
      R"({"epoch": 3, "best": 0.5, "names": ["a", null, true, -1], "model": 1})",
      R"({"type": "", "param_groups": []})", "\n{\"a\": {\"b\": [[[[1e300, 18446744073709551615]]]]}}",
      "\n[[[[[[[[{}]]]]]]]]", "{\"param_groups\": {\"params\": [0]}, \"type\": null}\n5"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  using namespace ddp;
  Input input(bytes);
  const std::string step(4, '\0');
  test::TextSink sink;
  try {
    pt::PtContents contents;
    if (std::string groups(input.until('\n')); !groups.empty()) {
      contents.optimizers[""] = {.groups = std::move(groups),
                                 .tensors = {{.name = "state.fc.weight.step", .dtype = "float32", .bytes = step}}};
    }
    contents.values = std::string(input.rest());
    pt::write_pt(sink, contents);
  } catch (const std::invalid_argument& error) {
    require(*error.what() != '\0', "a refusal says why");
    return Outcome::kRefused;
  }
  const pt::PtFile written(storage::own_bytes(sink.text), "weights.pt");
  require(written.root().is(pt::Kind::kDict), "a file holds a dict");
  return Outcome::kAccepted;
}
