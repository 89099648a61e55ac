// Reads and writes NumPy's files, one command a line on standard input:
//   load|map FILE OUT              reads FILE, writes the array to OUT
//   npz|npz_map FILE OUT PACKED    the same with the arrays of a .npz file
//   tokens FILE LENGTH STRIDE CROSS END [INDEX…]   prints size, tokens, documents, and the samples' data and targets
// and prints a line: each array's shape, strides and dtype, or "error: ...".
#include <ATen/ATen.h>

#include <iostream>
#include <sstream>

#include <ddprun/data/arrays.h>

namespace {

void describe(std::ostream& out, const at::Tensor& tensor) {
  out << tensor.sizes() << ' ' << tensor.strides() << ' ' << tensor.scalar_type() << ' ';
}

void print_tokens(std::ostream& out, std::istream& words) {
  std::string file;
  ddp::TokensOptions options;
  int64_t end = 0;
  words >> file >> options.length >> options.stride >> options.cross_documents >> end;
  if (end >= 0) options.document_end = end;
  const ddp::Tokens tokens(file, options);
  out << tokens.size() << ' ' << tokens.tokens() << ' ' << tokens.documents();
  for (int64_t index = 0; words >> index;) {
    const ddp::Batch batch = tokens.get_batch(std::vector{index});
    for (const auto& part : {batch.data, batch.target}) {
      for (int64_t i = 0; i < part.numel(); ++i) out << ' ' << part.const_data_ptr<int64_t>()[i];
    }
  }
}

std::string answer(const std::string& line) {
  std::istringstream words(line);
  std::string command, file, out;
  words >> command;
  std::ostringstream text;
  if (command == "tokens") {
    print_tokens(text, words);
    return text.str();
  }
  bool packed = false;
  words >> file >> out >> packed;
  if (command == "load" || command == "map" || command == "raster") {
    const at::Tensor tensor = command == "load"  ? ddp::load_npy(file)
                              : command == "map" ? ddp::map_npy(file)
                                                 : ddp::load_raster(file);
    describe(text, tensor);
    ddp::save_npy(out, tensor);
    return text.str();
  }
  const ddp::NpzFile content(file);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& name : content.names()) {
    tensors.emplace(name, command == "npz" ? content.at(name) : content.map(name));
    text << name << ' ';
    describe(text, tensors.at(name));
  }
  ddp::save_npz(out, tensors, packed);
  return text.str();
}

}  // namespace

int main(int /*argc*/, char** /*argv*/) {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << answer(line) << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error: " << error.what() << std::endl;
    }
  }
  return 0;
}
