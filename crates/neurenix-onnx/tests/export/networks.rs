//! Layers, and whole networks with sizes that vary.

use phynexus::{
    DType, Result, Scalar, Tensor,
    op::composite::Cell,
    tensor::{AttentionOptions, GeluApproximation, RecurrentWeights},
};

use super::{check, check_varying, cpu, integers, numbers, operators, vary};

#[test]
fn neural_layers() {
    let (x, w, b) = (numbers(&[2, 6, 4, 5], 1), numbers(&[6], 2), numbers(&[6], 3));
    let (mean, variance) = (numbers(&[6], 4), numbers(&[6], 5));
    let variance =
        Tensor::from_slice(&variance.abs().unwrap().to_vec::<f32>().unwrap(), &[6], cpu()).unwrap();
    let counts = check("norms", &[x, w, b, mean, variance, numbers(&[5], 6)], &|x| {
        let (x, w, b, mean, variance, own) = (&x[0], &x[1], &x[2], &x[3], &x[4], &x[5]);
        Ok(vec![
            x.batch_norm(Some(mean), Some(variance), Some(w), Some(b), false, 1e-5)?,
            x.batch_norm(Some(mean), Some(variance), None, None, false, 1e-3)?,
            x.batch_norm(None, None, Some(w), Some(b), true, 1e-5)?,
            x.group_norm(3, Some(w), Some(b), 1e-5)?,
            x.instance_norm(None, None, 1e-5)?,
            x.layer_norm(&[5], Some(own), Some(own), 1e-5)?,
            x.layer_norm(&[4, 5], None, None, 1e-5)?,
            x.rms_norm(&[5], Some(own), Some(1e-6))?,
            x.softmax(1)?,
            x.log_softmax(3)?,
        ])
    });
    for (operator, count) in [("BatchNormalization", 2), ("GroupNormalization", 2), ("LayerNormalization", 2)]
    {
        assert_eq!(counts.get(operator), Some(&count), "{operator}: {counts:?}");
    }
    check("activations", &[numbers(&[4, 6], 1)], &|x| {
        let x = &x[0];
        Ok(vec![
            x.hardtanh(-1.0, 1.0)?,
            x.relu6()?,
            x.leaky_relu(0.1)?,
            x.elu(1.0)?,
            x.selu()?,
            x.celu(0.7)?,
            x.hardsigmoid()?,
            x.hardswish()?,
            x.softsign()?,
            x.logsigmoid()?,
            x.glu(1)?,
            x.threshold(0.1, 2.0)?,
        ])
    });
}

#[test]
fn attention() {
    let heads = |seed| numbers(&[2, 3, 5, 4], seed);
    let mask = numbers(&[5, 5], 9);
    let flags = mask.gt_scalar(0.0).unwrap().to_vec::<bool>().unwrap();
    let flags: Vec<bool> = flags.iter().enumerate().map(|(at, &flag)| flag && at >= 5).collect();
    let flags = Tensor::from_slice(&flags, &[5, 5], cpu()).unwrap();
    let counts = check("attention", &[heads(1), heads(2), heads(3), mask, flags], &|x| {
        let causal = AttentionOptions { is_causal: true, ..Default::default() };
        let (q, k, v) = (&x[0], &x[1], &x[2]);
        Ok(vec![
            q.scaled_dot_product_attention(k, v, None, AttentionOptions::default())?,
            q.scaled_dot_product_attention(k, v, None, causal)?,
            q.scaled_dot_product_attention(k, v, Some(&x[3]), AttentionOptions::default())?,
            q.scaled_dot_product_attention(k, v, Some(&x[4]), AttentionOptions::default())?,
        ])
    });
    assert_eq!(counts["Softmax"], 4, "{counts:?}");
    assert!(!counts.contains_key("Concat") && !counts.contains_key("Slice"), "{counts:?}");
}

#[test]
fn recurrent_layers() {
    for (cell, operator) in
        [(Cell::Lstm, "LSTM"), (Cell::Gru, "GRU"), (Cell::Tanh, "RNN"), (Cell::Relu, "RNN")]
    {
        for reverse in [false, true] {
            let rows = cell.gates() * 3;
            let weights =
                [numbers(&[rows, 4], 1), numbers(&[rows, 3], 2), numbers(&[rows], 3), numbers(&[rows], 4)];
            let inputs = |step: usize| vec![numbers(&[4 + step, 2 + 2 * step, 4], 5)];
            let network = |x: &[Tensor]| {
                let [weight_ih, weight_hh, bias_ih, bias_hh] = &weights;
                let biases = [bias_ih, bias_hh].map(|bias| Some(bias).filter(|_| !reverse));
                let [bias_ih, bias_hh] = biases;
                let weights = RecurrentWeights { weight_ih, weight_hh, bias_ih, bias_hh };
                let result = x[0].recurrent(cell, weights, None, None, reverse)?;
                Ok([result.output, result.h_n].into_iter().chain(result.c_n).collect())
            };
            let name = format!("{}_{reverse}", cell.name());
            let model = check_varying(&name, &inputs, &[(0, 0, "time"), (0, 1, "batch")], &weights, &network);
            assert_eq!(operators(&model)[operator], 1);
        }
    }
}

fn mlp(x: &Tensor, weights: &[Tensor]) -> Result<Tensor> {
    let hidden = x.matmul(&weights[0].t()?)?.add(&weights[1])?.relu()?;
    hidden.matmul(&weights[2].t()?)?.add(&weights[3])
}

fn cnn(x: &Tensor, weights: &[Tensor]) -> Result<Tensor> {
    let [filter, bias, scale, mean, variance, head] = weights else { panic!("six weights") };
    let y = x.conv2d(filter, Some(bias), [1, 1], [1, 1], [1, 1], 1)?;
    let y = y.batch_norm(Some(mean), Some(variance), Some(scale), Some(bias), false, 1e-5)?.relu()?;
    let y = y.max_pool2d([2, 2], None, [0, 0], [1, 1], false)?;
    let y = y.adaptive_avg_pool2d([1, 1])?.flatten(1, -1)?;
    y.matmul(head)
}

/// One block of a transformer on tokens, with positions.
fn transformer(tokens: &Tensor, weights: &[Tensor]) -> Result<Tensor> {
    let [table, places, qkv, out, up, down, scale, bias] = weights else { panic!("eight weights") };
    let (batch, length) = (tokens.shape()[0], tokens.shape()[1]);
    let mut x = tokens.embedding(table, None)?.add(&places.narrow(0, 0, length)?)?;
    let normal = x.layer_norm(&[8], Some(scale), Some(bias), 1e-5)?;
    let all = normal.matmul(&qkv.t()?)?.reshape(&[batch, length, 3, 2, 4])?.permute(&[2, 0, 3, 1, 4])?;
    let part = |n: usize| all.narrow(0, n, 1)?.squeeze(0);
    let options = AttentionOptions { is_causal: true, ..Default::default() };
    let mixed = part(0)?.scaled_dot_product_attention(&part(1)?, &part(2)?, None, options)?;
    let mixed = mixed.permute(&[0, 2, 1, 3])?.reshape(&[batch, length, 8])?;
    x = x.add(&mixed.matmul(&out.t()?)?)?;
    let normal = x.layer_norm(&[8], Some(scale), Some(bias), 1e-5)?;
    let wide = normal.matmul(&up.t()?)?.gelu(GeluApproximation::None)?;
    x = x.add(&wide.matmul(&down.t()?)?)?;
    x.matmul(&table.t()?)
}

#[test]
fn networks_with_varying_sizes() {
    let weights = [numbers(&[16, 5], 1), numbers(&[16], 2), numbers(&[3, 16], 3), numbers(&[3], 4)];
    let inputs = |step: usize| vec![numbers(&[2 + step, 5], 5)];
    let model =
        check_varying("mlp", &inputs, &[(0, 0, "batch")], &weights, &|x| Ok(vec![mlp(&x[0], &weights)?]));
    let counts = operators(&model);
    assert_eq!((counts["Gemm"], counts["Relu"], counts.get("Shape")), (2, 1, None), "{counts:?}");
    assert!(["MatMul", "Add", "Transpose"].iter().all(|part| !counts.contains_key(*part)), "{counts:?}");
    let inputs = |step: usize| vec![numbers(&[2 + step, 3 + 2 * step, 5], 5)];
    let symbols = [(0, 0, "batch"), (0, 1, "time")];
    check_varying("mlp_of_sequences", &inputs, &symbols, &weights, &|x| Ok(vec![mlp(&x[0], &weights)?]));

    let variance = Tensor::from_slice(&[0.5f32, 1.0, 2.0, 1.5], &[4], cpu()).unwrap();
    let weights = [
        numbers(&[4, 3, 3, 3], 1),
        numbers(&[4], 2),
        numbers(&[4], 3),
        numbers(&[4], 4),
        variance,
        numbers(&[4, 7], 5),
    ];
    let inputs = |step: usize| vec![numbers(&[2 + step, 3, 8 + 2 * step, 10], 6)];
    let symbols = [(0, 0, "batch"), (0, 2, "height")];
    let model = check_varying("cnn", &inputs, &symbols, &weights, &|x| Ok(vec![cnn(&x[0], &weights)?]));
    let counts = operators(&model);
    assert_eq!((counts["BatchNormalization"], counts["MaxPool"]), (1, 1), "{counts:?}");

    let weights = [
        numbers(&[11, 8], 1),
        numbers(&[16, 8], 2),
        numbers(&[24, 8], 3),
        numbers(&[8, 8], 4),
        numbers(&[16, 8], 5),
        numbers(&[8, 16], 6),
        numbers(&[8], 7),
        numbers(&[8], 8),
    ];
    let inputs = |step: usize| vec![integers(&[2 + 2 * step, 3 + step], 11, 1)];
    let symbols = [(0, 0, "batch"), (0, 1, "time")];
    let model = check_varying("transformer", &inputs, &symbols, &weights, &|x| {
        Ok(vec![transformer(&x[0], &weights)?])
    });
    let counts = operators(&model);
    assert_eq!((counts["LayerNormalization"], counts["Gelu"], counts["Softmax"]), (2, 1, 1), "{counts:?}");
}

#[test]
fn sizes_that_follow_from_others() {
    let inputs = |step: usize| vec![numbers(&[2 + step, 6 + 4 * step, 3], 1)];
    let symbols = [(0, 0, "batch"), (0, 1, "time")];
    check_varying("sizes", &inputs, &symbols, &[], &|x| {
        let x = &x[0];
        let [batch, time, width] = x.shape() else { panic!("three axes") };
        let ones = Tensor::ones(&[*batch, 1, *width], DType::F32, x.device())?;
        let longer = Tensor::cat(&[&ones, x], 1)?;
        Ok(vec![
            longer.mul_scalar(2)?,
            longer.mean(&[1], false)?,
            x.sum(&[0], false)?.div_scalar(*batch as f64)?.mul_scalar(1.0 / *time as f64)?,
            x.narrow(1, time - 1, 1)?.squeeze(1)?,
            x.narrow(1, 0, time - 1)?,
            x.flip(&[1])?,
            x.slice(1, None, None, 2)?.add_scalar(1)?,
            x.reshape(&[batch * time, *width])?,
            x.reshape(&[*batch, time / 2, 2, *width])?,
            x.reshape(&[*batch, time * width])?.relu()?,
            x.pad(&[(0, 0), (0, *batch), (0, 0)], 0)?,
            Tensor::arange(
                Scalar::Int(0),
                Scalar::Int(*time as i64),
                Scalar::Int(1),
                DType::F32,
                x.device(),
            )?,
            x.matmul(&x.transpose(1, 2)?)?.tril(0)?,
            x.narrow(1, 0, 1)?.expand(&[*batch, *time, *width])?.contiguous()?,
            x.cumsum(1)?,
            x.argsort(1, false)?,
            x.var(&[1], 1.0, true)?,
        ])
    });
    let by_size = |x: &[Tensor]| Ok(vec![if x[0].shape()[0] > 2 { x[0].exp()? } else { x[0].sin()? }]);
    let error = vary(&inputs, &symbols, &[], &by_size).unwrap_err().to_string();
    assert!(error.contains("depends on the sizes"), "{error}");
    let error = vary(&inputs, &symbols[..1], &[], &|x| Ok(vec![x[0].exp()?])).unwrap_err().to_string();
    assert!(error.contains("no symbol"), "{error}");
}

#[test]
fn convolutions() {
    let (x, w, b) = (numbers(&[2, 4, 9, 8], 1), numbers(&[6, 2, 3, 3], 2), numbers(&[6], 3));
    check("conv_groups", &[x.clone(), w, b], &|x| {
        Ok(vec![
            x[0].conv2d(&x[1], Some(&x[2]), [2, 1], [1, 2], [1, 2], 2)?,
            x[0].conv2d(&x[1], None, [1, 1], [0, 0], [1, 1], 2)?,
        ])
    });
    check("conv1d", &[numbers(&[2, 3, 11], 1), numbers(&[4, 3, 3], 2)], &|x| {
        Ok(vec![x[0].conv1d(&x[1], None, [2], [1], [2], 1)?])
    });
    check("conv3d", &[numbers(&[1, 2, 5, 6, 4], 1), numbers(&[3, 2, 2, 3, 2], 2)], &|x| {
        Ok(vec![x[0].conv3d(&x[1], None, [1, 2, 1], [1, 0, 0], [1, 1, 1], 1)?])
    });
    check("conv_transposed", &[x.clone(), numbers(&[4, 3, 3, 3], 2), numbers(&[6], 3)], &|x| {
        Ok(vec![
            x[0].conv_transpose2d(&x[1], Some(&x[2]), [2, 2], [1, 1], [1, 0], 2, [1, 1])?,
            x[0].conv_transpose2d(&x[1], None, [3, 1], [0, 1], [0, 0], 2, [1, 2])?,
        ])
    });
    let counts = check("pools", &[x], &|x| {
        let x = &x[0];
        let (best, places) = x.max_pool2d_with_indices([2, 2], None, [1, 0], [1, 1], false)?;
        Ok(vec![
            x.max_pool2d([3, 2], Some([2, 2]), [1, 0], [1, 1], true)?,
            x.max_pool2d([2, 2], None, [0, 0], [2, 1], false)?,
            best,
            places,
            x.avg_pool2d([2, 2], None, [0, 0], false, true)?,
            x.avg_pool2d([3, 3], Some([2, 1]), [1, 1], false, true)?,
            x.avg_pool2d([3, 3], Some([2, 2]), [1, 1], true, false)?,
            x.adaptive_avg_pool2d([1, 1])?,
            x.adaptive_avg_pool2d([3, 2])?,
        ])
    });
    assert!(counts["MaxPool"] >= 3 && counts["AveragePool"] >= 3, "{counts:?}");
}
