// Pickles, and the state dict and tensors in a .pt file that holds such a one beside two storages.
#include <stdexcept>

#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/elements.h"
#include "checkpoint/pt/pickler.h"
#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/state_dict.h"
#include "checkpoint/pt/unpickler.h"
#include "checkpoint/pt/zip_writer.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ddp;
using fuzz::require;

// Closed, so that a seed is what a writer makes.
template <typename Write>
std::string pickled(const Write& write) {
  pt::Pickler pickler;
  write(pickler);
  return pickler.take();
}

void write_model(pt::Pickler& pickler) {
  pickler.begin_dict();
  pickler.text("fc.weight");
  pickler.tensor({.storage = "0", .dtype = "float32", .offset = 2, .sizes = {3, 4}, .strides = {4, 1}}, 14);
  pickler.text("fc.turned");
  pickler.tensor({.storage = "0", .dtype = "float32", .sizes = {4, 1, 3}, .strides = {1, 9, 4}}, 14);
  pickler.text("fc.mask");
  pickler.tensor({.storage = "1", .dtype = "uint16", .sizes = {}, .strides = {}}, 1);
  pickler.end_dict();
}

void write_optimizer(pt::Pickler& pickler) {
  pickler.begin_dict();
  pickler.text("state");
  pickler.begin_dict();
  pickler.integer(0);
  pickler.begin_dict();
  pickler.text("step");
  pickler.real(3);
  pickler.text("exp_avg");
  pickler.tensor({.storage = "0", .dtype = "float32", .sizes = {2}, .strides = {1}}, 14);
  pickler.end_dict();
  pickler.end_dict();
  pickler.text("param_groups");
  pickler.begin_list();
  pickler.begin_dict();
  pickler.text("lr");
  pickler.real(0.1);
  pickler.text("betas");
  pickler.begin_tuple();
  pickler.real(0.9);
  pickler.real(0.999);
  pickler.end_tuple();
  pickler.text("params");
  pickler.begin_list();
  pickler.integer(0);
  pickler.integer(1);
  pickler.end_list();
  pickler.end_dict();
  pickler.end_list();
  pickler.end_dict();
}

void write_values(pt::Pickler& pickler) {
  pickler.begin_list();
  pickler.none();
  pickler.boolean(true);
  for (const int64_t value :
       {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{-1}, int64_t{1} << 40, INT64_MIN, INT64_MAX})
    pickler.integer(value);
  pickler.real(0.1);
  pickler.bytes(std::string_view("\0\x7f\x80\xff", 4));
  pickler.begin_tuple();
  pickler.end_tuple();
  pickler.end_list();
}

std::string file_with(std::string_view pickle) {
  test::TextSink sink;
  pt::ZipWriter zip(sink);
  zip.add("archive/data.pkl", pickle);
  zip.add("archive/data/0", std::string(56, 'w'));
  zip.add("archive/data/1", std::string(2, 'm'));
  zip.finish();
  return sink.text;
}

void check_tensor(const pt::PtFile& file, const pt::TensorEntry& tensor) {
  try {
    const std::string_view bytes = file.bytes_of(tensor);
    constexpr std::uint64_t kMaxCopyBytes = 1 << 20;
    if (pt::gathered_size(tensor) > kMaxCopyBytes) return;
    std::uint64_t count = 1;
    for (const int64_t size : tensor.sizes) count *= static_cast<std::uint64_t>(size);
    require(pt::gather_elements(tensor, bytes).size() == count * pt::dtype_by_name(tensor.dtype)->bytes,
            "a tensor has as many elements as its sizes say");
  } catch (const pt::FormatError&) {
  }
}

// Whether there is one.
bool check_state(const pt::PtFile& file) {
  try {
    const pt::StateDict state = pt::find_state(file.root());
    for (const auto& [name, tensor] : state.tensors) check_tensor(file, tensor);
    return true;
  } catch (const pt::FormatError&) {
    return false;
  }
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  using namespace std::string_literals;
  return {
      pickled(write_model), pickled(write_optimizer), pickled([](pt::Pickler& pickler) {
        pickler.begin_dict();
        pickler.text("model");
        write_model(pickler);
        pickler.text("optimizer");
        write_optimizer(pickler);
        pickler.text("values");
        write_values(pickler);
        pickler.end_dict();
      }),
      // As torch::save has it: objects with a state, a module's and an optimizer's.
      "\x80\2c__torch__.Net\nNet\n)\x81}(X\1\0\0\0w}ub."s,
      "\x80\2c__torch__.O\nO\n)\x81}(X\5\0\0\0state}X\x0c\0\0\0param_groupsc__torch__.G\nG\n)\x81}"
      "(X\x0e\0\0\0param_groups/0}(X\x08\0\0\0params/0X\1\0\0\0aX\7\0\0\0options}(X\2\0\0\0lrK\1uuubub."s,
      // Containers that are remembered and used again, and the functions that copy them.
      "\x80\2}q\0(X\1\0\0\0aq\1}q\2(h\1h\2X\1\0\0\0bh\2uu."s,
      "\x80\2}(K\0ccollections\nOrderedDict\n](K\1N\x86K\2N\x86"
      "e\x85RK\1c_codecs\nencode\nX\2\0\0\0\xc3\xbfX\6\0\0\0latin1\x86RK\2"
      "ccollections\nCounter\n}K\1K\2s\x85Ru."s,
      // Tensors that are not read, marked ones, keys of any kind, storages with views.
      "\x80\2}(X\1\0\0\0sctorch._utils\n_rebuild_sparse_tensor\n(ctorch.serialization\n_get_layout\n"
      "X\x10\0\0\0torch.sparse_coo\205R)tRX\1\0\0\0mctorch._utils\n_rebuild_meta_tensor_no_storage\n)RX\1\0\0\0l]"
      "ctorch._utils\n_rebuild_nested_tensor\n)Rau."s,
      "\x80\2}(X\1\0\0\0cctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nComplexFloatStorage\nX\1\0\0\0"
      "0X\3\0\0\0cpuK\7tQK\1K\2\205K\1\205\x89}}X\4\0\0\0conj\x88stRX\1\0\0\0nctorch._utils\n_rebuild_tensor_v2\n("
      "(X\7\0\0\0storagectorch\nShortStorage\nX\1\0\0\0"
      "0X\3\0\0\0cpuK\7X\1\0\0\0vK\1K\3\207tQK\0K\4K\2\206K\0K\1\206\x89}}X\3\0\0\0neg\x88stRu."s,
      "\x80\2}(\x88K\1NK\2G?\xf8\0\0\0\0\0\0K\3K\1X\1\0\0\0a\206ctorch._utils\n_rebuild_nested_tensor\n)R"
      "c__builtin__\ncomplex\nK\1K\2\206RK\4u."s,
      // Every other opcode, to be put into the others.
      "(.GJKMNQRTUXabcehjqrstu}])\x80\x81\x85\x86\x87\x88\x89\x8a\x8f"s};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  const std::string contents = file_with(bytes);
  try {
    const std::unique_ptr<pt::Pickle> pickle = pt::unpickle(bytes);
    const pt::PtFile file(storage::own_bytes(contents), "weights.pt");
    require(file.root().kind() == pickle->root.kind(), "a pickle is the same in a file");
    return check_state(file) ? Outcome::kAccepted : Outcome::kRefused;
  } catch (const pt::FormatError& error) {
    require(*error.what() != '\0', "a refusal says why");
    return Outcome::kRefused;
  }
}
