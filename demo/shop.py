"""What the shop of the demo knows: its orders, its policies, and the words that its customers use.

Small tables in place of a database, a help centre and a text classifier. The agents (`agents.py`) look
things up here; nothing in this file knows about single tickets.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Order(NamedTuple):
    """One row of the order table; `state` is a whole sentence, as the warehouse system writes it."""

    items: str
    total: str
    paid: str
    state: str


TRANSIT: Final = "The parcel was handed to the carrier on 28 May and is on its way; it is expected on 5 June."
LATE: Final = "The parcel is late: its last scan was on 26 May at the sorting centre, and a search was started."
PACKING: Final = "It is being packed and has not left the warehouse yet."
SIGNED: Final = "The carrier recorded a delivery on 1 June, left at the neighbour's, signed 'Baker'."
RETURNED: Final = "The goods came back to the warehouse on 30 May; the refund has not been booked yet."


def _delivered(day: str) -> str:
    return f"It was delivered on {day}."


ORDERS: Final[dict[str, Order]] = {
    "70112": Order("1 Arc floor lamp", "129.00", "18 May", TRANSIT),
    "70125": Order("1 linen curtain", "45.00", "22 May", LATE),
    "70138": Order("1 black kettle", "59.00", "20 May", LATE),
    "70141": Order(
        "2 wool cushions", "58.00", "21 May", "The label was printed on 23 May; the parcel was never scanned."
    ),
    "70147": Order("1 clay vase", "34.00", "25 May", _delivered("2 June")),
    "70149": Order("1 black kettle", "59.00", "26 May", _delivered("2 June")),
    "70156": Order("1 wool blanket", "89.00", "19 May", TRANSIT),
    "70163": Order("1 oak side table", "149.00", "20 May", SIGNED),
    "70170": Order("1 clay vase", "34.00", "27 May", TRANSIT),
    "70177": Order("1 wool blanket", "89.00", "24 May", TRANSIT),
    "70184": Order("4 stoneware mugs", "52.00", "22 May", LATE),
    "70191": Order("1 desk lamp", "64.00", "21 May", TRANSIT),
    "70205": Order("2 linen curtains", "90.00", "23 May", TRANSIT),
    "70218": Order("1 oak stool", "79.00", "2 June", PACKING),
    "70229": Order("1 desk lamp", "64.00", "2 June", PACKING),
    "70232": Order("1 wool blanket", "89.00", "1 June", PACKING),
    "70246": Order("1 oak chair", "139.00", "12 May", _delivered("24 May")),
    "70250": Order("1 wool blanket", "89.00", "10 May", _delivered("20 May")),
    "70264": Order("6 stoneware mugs", "78.00", "14 May", _delivered("23 May")),
    "70271": Order("1 desk lamp", "64.00", "15 May", _delivered("26 May")),
    "70288": Order("1 oak chair", "139.00", "2 May", _delivered("12 May")),
    "70293": Order("1 linen curtain", "45.00", "2 June", PACKING),
    "70309": Order("1 oak bench", "499.00", "26 May", TRANSIT),
    "70311": Order("1 clay vase", "34.00", "2 June", PACKING),
    "70325": Order("1 desk lamp", "64.00", "8 May", RETURNED),
    "70330": Order("2 wool cushions", "58.00", "6 May", RETURNED),
    "70347": Order("1 Arc floor lamp", "129.00", "3 April", _delivered("15 April")),
    "70352": Order("1 clay vase", "34.00", "20 May", _delivered("30 May")),
    "70366": Order("1 oak chair", "139.00", "16 May", _delivered("28 May")),
    "70371": Order("1 wool blanket, grey", "89.00", "22 May", _delivered("1 June")),
    "70385": Order("1 stoneware mug", "13.00", "24 May", _delivered("2 June")),
    "70399": Order("1 desk lamp", "64.90", "29 May, and once more on 29 May", TRANSIT),
    "70403": Order("1 oak stool", "79.00", "28 May, and once more on 28 May", TRANSIT),
    "70410": Order("4 desk lamps", "256.00", "11 May", _delivered("19 May")),
    "70424": Order("2 oak chairs", "278.00", "12 May", _delivered("22 May")),
    "70438": Order("1 oak side table", "149.00", "9 May", _delivered("18 May")),
    "70452": Order("1 wool blanket", "89.00", "27 May", TRANSIT),
    "70466": Order("2 oak chairs", "278.00", "28 May", TRANSIT),
    "70473": Order("4 wool cushions", "116.00", "26 May", TRANSIT),
    "70487": Order("1 oak chair", "139.00", "18 May", _delivered("29 May")),
}


class Topic(NamedTuple):
    """Something that customers write about.

    Attributes:
        name: how `classify` writes it down.
        words: beginnings of words, or phrases, that give it away, in the languages of the customers.
        policy: what the shop's rules and help articles say about it; None where nothing is written.
        about_an_order: whether an answer depends on one order, so that its number is worth asking for.
    """

    name: str
    words: tuple[str, ...]
    policy: str | None
    about_an_order: bool = False


def _words(*languages: str) -> tuple[str, ...]:
    return tuple(word.strip() for language in languages for word in language.split(","))


TOPICS: Final = (
    Topic(
        "where the parcel is",
        _words(
            "where is,arriv,ariv,parcel,package,tracking,courier,driver,delivered,not come,hasn't come,meant to come",
            "nothing since,went through,go through,placed it,ordered,dint get,nobody came,told it would be",
            "paket,angekommen,ankommen,wo ist,wo bleibt,wann kommt,colis,reçu,où est,suivi,llega,dónde está,"
            "encomenda,chegou",
            "onde está,paczk,dotarł,gdzie jest,pacco,arrivato,dove si trova,pakket,waar blijft,"
            "届きません,届かない,配送状況",
        ),
        None,
        about_an_order=True,
    ),
    Topic(
        "question about the shop's policy or help on shipping costs, times and countries",
        _words(
            "ship to,ship there,do you ship,deliver to,delivery charge,delivery cost,shipping cost,customs,"
            "next day,express",
            "collect,pick up,pickup,versandkosten,lieferzeit,lieferung nach,liefern sie,wie lange dauert,"
            "livrez,frais de livraison",
            "délais,gastos de envío,enviáis,portes,custos de envio,koszt dostawy,spedite,verzendkosten,送料,配送料",
        ),
        "Shipping: 4.90 in the country, 9.90 in the EU, 19.90 to Norway and Switzerland, where customs "
        "duties are the "
        "buyer's; large furniture 29.00. Two to four working days, next day for 8.00. Collecting in the "
        "store is free.",
    ),
    Topic(
        "question about the shop's policy or help on changing the address",
        _words("address,lieferadresse,adresse,dirección,direcção,morada,adres dostawy,indirizzo,住所"),
        "Address: we can change it until the parcel has left the warehouse, afterwards only the carrier can.",
        about_an_order=True,
    ),
    Topic(
        "question about the shop's policy or help on returning or exchanging goods",
        _words(
            "return,send back,send it back,send something back,exchange,swap,too big,too small,final sale,"
            "widerruf,zurückschick",
            "zurückgeben,rücksend,umtausch,retour,rendre,échang,devolver,devolución,cambiar por,troca,"
            "devolução,zwrot,zwróci",
            "wymian,reso,restituire,retourner,retourneren,返品,交換",
        ),
        "Returns: 30 days from delivery, sale items and gifts included, against the purchase price or store credit. "
        "Goods may be tried at home, not worn out; the box is not needed. We pay the postage for "
        "exchanges, the buyer "
        "pays 4.90 for other returns.",
        about_an_order=True,
    ),
    Topic(
        "question about the shop's policy or help on cancelling an order",
        _words("cancel,stornier,annul,anular,anulować,annuleren,キャンセル,by mistake,por error"),
        "Cancelling: free of charge until the order has left the warehouse; after that please return it.",
        about_an_order=True,
    ),
    Topic(
        "question about the shop's policy or help on getting money back",
        _words(
            "refund,money back,credit my,my money,geld zurück,erstattung,rembours,reembolso,devuelven el "
            "dinero,dinheiro de volta",
            "zwrot pieniędzy,rimborso,terugbetal,返金",
        ),
        "Refunds: to the means of payment of the order, within 7 days after the goods came back to us.",
        about_an_order=True,
    ),
    Topic(
        "question about the shop's policy or help on damaged, wrong or missing goods",
        _words(
            "broke,crack,damage,ruined,in pieces,soaked,faulty,defect,doesn't work,stopped working,missing,"
            "you sent,wrong item",
            "flacker,defekt,kaputt,beschädigt,cassé,abîmé,roto,rota,falta una,quebrad,partid,uszkodz,rotto,"
            "kapot,割れ,壊れ,repair",
        ),
        "Damage: within 14 days of delivery we send a replacement or missing parts, or refund the price, "
        "as the buyer likes; "
        "a photo is enough, nothing has to be sent back.",
        about_an_order=True,
    ),
    Topic(
        "question about the shop's policy or help on the warranty",
        _words("warranty,guarantee,garantie,gewährleistung,garantía,garantia,gwarancj,garanzia,保証,months"),
        "Warranty: two years on everything, five on oak furniture; we repair or replace.",
        about_an_order=True,
    ),
    Topic(
        "question about the shop's policy or help on invoices",
        _words("invoice,vat,rechnung,facture,factura,fatura,faktur,fattura,factuur,領収書,請求書"),
        "Invoices: in the account under Orders, or by e-mail on request, also made out to a company.",
        about_an_order=True,
    ),
    Topic(
        "question about the shop's policy or help on being charged twice",
        _words(
            "charged twice,charged my card twice,two times,double charge,doppelt,débité deux,dos veces,duas "
            "vezes,dwa razy,二重"
        ),
        "Double charges: the second payment is a reservation and is released within 5 days; otherwise we refund it.",
        about_an_order=True,
    ),
    Topic(
        "what was paid",
        _words("total of,expense report,how much did i pay,gesamtbetrag,montant total,importe total"),
        None,
        about_an_order=True,
    ),
    Topic(
        "question about the shop's policy or help on ways to pay",
        _words(
            "pay with,pay by,paypal,klarna,credit card,instal,ratenzahlung,bezahlen,payer,pagar,zapłaci,na "
            "raty,płatności,支払"
        ),
        "Payment: card, PayPal, Klarna, bank transfer; instalments from 100.00; no cash on delivery.",
    ),
    Topic(
        "question about the shop's policy or help on vouchers, discounts and prices",
        _words(
            "voucher,discount,code,price match,cheaper,difference,gutschein,rabatt,code promo,remise,"
            "descuento,cupón,zniżk"
        ),
        "Prices: vouchers do not apply to sale items; no price matching; a price that falls within 14 "
        "days of buying is "
        "refunded on request; 10 % off from ten pieces and for students.",
    ),
    Topic(
        "question about the shop's policy or help on products and their care",
        _words(
            "dishwasher,wash,bulb,fits,dimension,how big,material,filled with,allerg,assembl,instructions "
            "online,can i oil,wäscht",
            "waschmaschine,pflege,maße,dimensions,poids,medidas,lavar,pranie,lavatrice,洗",
        ),
        "Products: mugs are dishwasher safe; wool by hand, cold; oak is oiled with linseed oil; the Arc "
        "lamp takes an E27 "
        "bulb, included; the chair is 45 x 82 x 50 cm and holds 120 kg; cushions are filled with untreated wool; "
        "assembly instructions are on each product page.",
    ),
    Topic(
        "question about the shop's policy or help on stock",
        _words(
            "in stock,available,sold out,lieferbar,ausverkauft,auf lager,disponible,en stock,esgotado,dostępn,在庫,入荷"
        ),
        "Stock: green blankets and black kettles are back in the second week of June; the product page "
        "can send a note.",
    ),
    Topic(
        "question about the shop's policy or help on gift wrapping",
        _words("gift wrap,wrapping,card to,geschenkverpackung,papier cadeau,envolver,prezent"),
        "Gifts: wrapping is 3.00, a card is free; both are in the basket.",
    ),
    Topic(
        "question about the shop's policy or help on accounts, login and newsletter",
        _words(
            "log in,login,password,account,newsletter,unsubscrib,anmelden,passwort,konto,mot de passe,compte,"
            "contraseña,cuenta",
            "palavra-passe,hasło,konta,wachtwoord,パスワード,e-mail address",
        ),
        "Accounts: a reset link comes within 10 minutes, else we set one by hand; the e-mail address and "
        "the newsletter are "
        "under Profile; accounts are merged on request.",
    ),
    Topic(
        "question about the shop's policy or help on personal data",
        _words(
            "gdpr,delete my,all data,personal data,dsgvo,daten löschen,données personnelles,rgpd,datos personales,rodo"
        ),
        "Data: we delete an account and its data within 30 days; invoices are kept as the law demands.",
    ),
)

# These three take the lead over whatever else a ticket mentions.
DANGER: Final = Topic(
    "danger, threats, lawyers, press or fraud",
    _words(
        "caught fire,burned,hospital,electric shock,injur,solicitor,lawyer,court,police,journalist,press "
        "office,hacked,fraud,smash",
        "anwalt,anzeige,polizei,gericht,verletzt,avocat,tribunal,mise en demeure,mets en demeure,blessé,"
        "abogado,herida,peligros",
        "advogado,ferid,adwokat,avvocato,弁護士,怪我",
    ),
    None,
)
MANIPULATION: Final = Topic(
    "an attempt to give the system instructions",
    _words(
        "ignore your,ignore all,previous instructions,system prompt,system:,override,you are now,admin "
        "password,skip review"
    ),
    None,
)
ADVERTISING: Final = Topic(
    "advertising or phishing",
    _words(
        "seo,backlink,webmaster,crypto,guaranteed profit,click here,casino,free spins,mailbox is full,"
        "verify your account",
        "leading manufacturer,purchasing needs,sofortkredit,unverbindlich,congratulations,claim your",
    ),
    None,
)
# These two only count where nothing else was found.
THANKS: Final = Topic(
    "thanks or feedback",
    _words(
        "thank,lovely,perfect,great if,idea,vielen dank,danke,wunderschön,merci,gracias,obrigad,dziękuj,"
        "grazie,bedankt,ありがとう"
    ),
    None,
)
UNCLEAR: Final = Topic(
    "unclear request",
    _words(
        "help,hello,problem,question,useless,worst,idiot,hilfe,hallo,frage,bonjour,hola,ayuda,olá,dzień "
        "dobry,ciao,こんにちは"
    ),
    None,
)


class Language(NamedTuple):
    """A language that customers write in: how to spot it, and a line that says why the reply is in English."""

    marks: tuple[str, ...]
    note: str


LANGUAGES: Final[dict[str, Language]] = {
    "German": Language(
        _words("ich,und,ist,nicht,wie,bestellung,für,mein,meine,bitte,der"),
        "Wir antworten auf Englisch; schreiben Sie uns gern weiter auf Deutsch.",
    ),
    "French": Language(
        _words("je,vous,est,et,la,le,ma,mon,bonjour,commande,pour"),
        "Nous répondons en anglais ; vous pouvez continuer à nous écrire en français.",
    ),
    "Spanish": Language(
        _words("el,la,mi,es,y,que,lo,hola,pedido,cuándo,cómo,una"),
        "Respondemos en inglés; puede seguir escribiéndonos en español.",
    ),
    "Portuguese": Language(
        _words("a,o,minha,de,não,olá,encomenda,uma,mas,por"),
        "Respondemos em inglês; pode continuar a escrever-nos em português.",
    ),
    "Italian": Language(
        _words("il,mio,è,non,buongiorno,di,pacco,potete,si"),
        "Rispondiamo in inglese; può continuare a scriverci in italiano.",
    ),
    "Dutch": Language(
        _words("mijn,het,en,de,waar,niet,besteld,nog,niks"),
        "Wij antwoorden in het Engels; u kunt ons in het Nederlands blijven schrijven.",
    ),
    "Polish": Language(
        _words("dzień,dobry,moja,jest,nie,z,czy,jak,się,na"),
        "Odpowiadamy po angielsku; można do nas pisać po polsku.",
    ),
}
JAPANESE_NOTE: Final = "英語で返信いたしますが、日本語でお書きいただいて構いません。"
