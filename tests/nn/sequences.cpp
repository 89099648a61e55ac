// LibTorch's recurrent layers, linear layers, attention and transformers: see subjects.h.
#include <torch/nn/modules.h>

#include "tests/nn/sequence_subjects.h"

namespace ddp::test {

namespace {
namespace nn = torch::nn;

void add_recurrent(Subjects& add) {
  add["RNN"] = make<nn::RNN>(nn::RNNOptions(12, 16).num_layers(2));
  add["RNN, relu, bidirectional"] =
      make<nn::RNN>(nn::RNNOptions(12, 16).nonlinearity(torch::kReLU).bidirectional(true));
  add["LSTM"] = make<nn::LSTM>(nn::LSTMOptions(12, 16).num_layers(2).dropout(0.2));
  add["LSTM, batch_first, bidirectional"] =
      make<nn::LSTM>(nn::LSTMOptions(12, 16).batch_first(true).bidirectional(true));
  add["LSTM, proj_size"] = make<nn::LSTM>(nn::LSTMOptions(12, 16).proj_size(6));
  add["GRU"] = make<nn::GRU>(nn::GRUOptions(12, 16).num_layers(2));
  add["GRU, no bias"] = make<nn::GRU>(nn::GRUOptions(12, 16).bias(false));
  add["RNNCell"] = make<nn::RNNCell>(12, 16);
  add["LSTMCell"] = make<nn::LSTMCell>(12, 16);
  add["GRUCell"] = make<nn::GRUCell>(12, 16);
}

using LibTorch =
    SequenceLibrary<nn::Linear, nn::LinearOptions, nn::MultiheadAttention, nn::MultiheadAttentionOptions,
                    nn::TransformerEncoderLayer, nn::TransformerEncoderLayerOptions, nn::TransformerDecoderLayer,
                    nn::TransformerDecoderLayerOptions, nn::TransformerEncoder, nn::TransformerEncoderOptions,
                    nn::TransformerDecoder, nn::TransformerDecoderOptions, nn::Transformer, nn::TransformerOptions>;

}  // namespace

void add_sequences(Subjects& subjects) {
  add_recurrent(subjects);
  add_sequence_library<LibTorch>(subjects, "");
}

}  // namespace ddp::test
